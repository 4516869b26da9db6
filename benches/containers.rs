//! Time in seconds to start and to stop 256 containers.

use std::time::Instant;

use dray_lab::{Cancel, Lab, placement};

fn main() {
    const COUNT: usize = 256;
    for _ in 0..3 {
        let start = Instant::now();
        let program = env!("CARGO_BIN_EXE_dray").into();
        let mut lab = Lab::new(program, Cancel::default()).expect("root");
        for number in 0..COUNT {
            lab.start_container(&format!("c{number}"), &placement::allowed()).expect("a container");
        }
        lab.wait_until_up().expect("containers");
        let up = start.elapsed();
        let start = Instant::now();
        drop(lab);
        let (up, down) = (up.as_secs_f64(), start.elapsed().as_secs_f64());
        println!("{COUNT} containers: up in {up:.2} s, gone in {down:.2} s");
    }
}
