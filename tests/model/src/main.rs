//! x
use fence_model::disasters::*;
use fence_model::check::check;
fn main() {
    let a: Vec<u8> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let m = Disasters { 
        bounds: Bounds { grants: a[0], rollbacks: a[1], restores: a[2], copies: a[3], snapshots: a[4], switches: a[5], deaths: a[6] }, situations: &[], mutant: None };
    let r = check(m, None, &mut |p| if p.took.as_millis() % 2000 < 100 { eprintln!("{p:?}") });
    println!("{r:#?}");
}
