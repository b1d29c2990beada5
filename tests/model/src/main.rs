//! x
use fence_model::blobs::*;
use fence_model::check::check;
fn main() {
    let a: Vec<u8> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let puts: &'static [u8] = match a[5] { 0 => &[0, 0, 1], 1 => &[0, 1, 2], 2 => &[0, 1], _ => &[0, 0, 1, 2] };
    let names: Vec<&'static str> = SITUATIONS.iter().map(|s| s.0).collect();
    let m = Blobs { puts, mutant: None,
        bounds: Bounds { grants: a[0], ticks: a[1], rollbacks: a[2], reads: a[3], given_up: a[4] }, situations: names.leak() };
    let r = check(m, None, &mut |p| if p.took.as_millis() % 2000 < 100 { eprintln!("{p:?}") });
    println!("{r:#?}");
}
