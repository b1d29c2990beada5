fn main() {
    let from: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let t = std::thread::Builder::new()
        .name("simulation-0".into())
        .spawn(move || {
            for seed in from..from + n {
                let start = std::time::Instant::now();
                let a = fence_simulation::run::run(seed, None);
                let mut text = Vec::new();
                a.history.write(&mut text).unwrap();
                let mut kinds = std::collections::BTreeMap::new();
                for r in &a.history.records {
                    let k = match r {
                        fence_history::Record::Call(c) => match &c.answered {
                            None => "none".to_string(),
                            Some(x) => format!("{:?}", x.answer)
                                .split([' ', '(', '{'])
                                .next()
                                .unwrap()
                                .to_string(),
                        },
                        o => format!("{o:?}").split([' ', '(']).next().unwrap().to_string(),
                    };
                    *kinds.entry(k).or_insert(0) += 1;
                }
                println!(
                    "{seed} {:?} steps {} {:?} fail {:?}",
                    start.elapsed(),
                    a.steps,
                    kinds,
                    a.failures
                );
                if std::env::args().nth(3).is_some() {
                    let b = fence_simulation::run::run(seed, None);
                    let mut other = Vec::new();
                    b.history.write(&mut other).unwrap();
                    println!("same: {}", text == other);
                    std::fs::write(format!("/tmp/h{seed}.a"), &text).unwrap();
                    std::fs::write(format!("/tmp/h{seed}.b"), &other).unwrap();
                }
            }
        })
        .unwrap();
    t.join().unwrap();
}
