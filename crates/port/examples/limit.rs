fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    for size in [64, 512, 1500] {
        let l =
            dray_port::limit::measure(size, std::time::Duration::from_secs(1), a[0], (a[1], a[2]))
                .unwrap();
        println!("{size}: {:.1} Mpps", l.pps() / 1e6);
    }
}
