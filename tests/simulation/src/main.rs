fn main() {
    let from: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let mutant = std::env::args().nth(3).and_then(|name| {
        fence_core::mutants::Mutant::ALL
            .iter()
            .find(|(m, _)| format!("{m:?}") == name)
            .map(|(m, _)| *m)
    });
    let all = std::env::args().nth(3).as_deref() == Some("all");
    let go = move |mutant: Option<fence_core::mutants::Mutant>, most: u64| {
        let start = std::time::Instant::now();
        let mut seen = std::collections::BTreeMap::<String, u64>::new();
        let mut bad = 0;
        for seed in from..from + n {
            let a = fence_simulation::run::run(seed, mutant);
            let r = fence_history::check(&a.history);
            for (c, k) in &r.looked_at {
                *seen.entry(format!("{c}")).or_default() += k;
            }
            if !r.is_clean() || !a.failures.is_empty() {
                bad += 1;
                println!("{mutant:?} seed {seed}: {:?} malformed {:?}", a.failures, r.malformed);
                for v in r.violations.iter().take(6) {
                    println!("   {} {}", v.checker, v.what);
                }
                let mut text = Vec::new();
                a.history.write(&mut text).unwrap();
                std::fs::write(format!("/tmp/h{seed}.jsonl"), &text).unwrap();
                if bad >= most {
                    break;
                }
            }
        }
        println!("{mutant:?}: {bad} bad, {:?}, {seen:?}", start.elapsed());
    };
    let t = std::thread::Builder::new()
        .name("simulation-0".into())
        .spawn(move || {
            if all {
                for (m, _) in fence_core::mutants::Mutant::ALL {
                    go(Some(*m), 1);
                }
            } else {
                go(mutant, 10)
            }
        })
        .unwrap();
    t.join().unwrap();
}
