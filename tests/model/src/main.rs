//! x
use fence_model::drained::*;
use fence_model::check::check;
fn main() {
    let a: Vec<u8> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let requests: &'static [u8] = match a[5] { 0 => &[0, 0], 1 => &[0, 1], 2 => &[0, 1, 2], _ => &[0] };
    let names: Vec<&'static str> = SITUATIONS.iter().map(|s| s.0).collect();
    let m = Drained { requests, mutant: None,
        bounds: Bounds { grants: a[0], losses: a[1], deaths: a[2], expiries: a[3], rollbacks: a[4] }, situations: names.leak() };
    let r = check(m, None, &mut |p| if p.took.as_millis() % 2000 < 100 { eprintln!("{p:?}") });
    println!("{r:#?}");
}
