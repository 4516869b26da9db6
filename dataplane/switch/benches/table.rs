//! `cargo bench -p dray-switch`: cost of the table per frame, for tables of few and of many
//! stations, compared with the standard library's map behind a lock.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::RwLock;
use std::time::Instant;

use dray_switch::Table;
use dray_wire::MacAddr;

const FRAMES: usize = 1 << 22;

fn main() {
    println!("stations  lookup  learn  locked map   ns per frame");
    for stations in [2, 1000, 30_000] {
        let table = Table::new(65_536, u32::MAX);
        let mut map = HashMap::new();
        let macs: Vec<_> = (0..stations).map(|id| MacAddr::local(id * 77)).collect();
        for mac in &macs {
            table.learn(0, *mac, 1, 0);
            map.insert((0u16, *mac), 1u16);
        }
        let map = RwLock::new(map);
        // An order that the CPU cannot predict.
        let mut random = 1u64;
        let frames = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            macs[(random >> 33) as usize % macs.len()]
        });
        let frames: Vec<_> = frames.take(1 << 16).collect();
        let lookup = time(&frames, |mac| table.lookup(0, mac));
        let learn = time(&frames, |mac| table.learn(0, mac, 1, 0));
        let locked = time(&frames, |mac| map.read().unwrap().get(&(0, mac)).copied());
        println!("{stations:8}  {lookup:6.1}  {learn:5.1}  {locked:10.1}");
    }
}

fn time<T>(frames: &[MacAddr], mut each: impl FnMut(MacAddr) -> T) -> f64 {
    let start = Instant::now();
    for mac in frames.iter().cycle().take(FRAMES) {
        black_box(each(black_box(*mac)));
    }
    start.elapsed().as_secs_f64() * 1e9 / FRAMES as f64
}
