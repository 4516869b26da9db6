//! Virtual functions of a network card, which QEMU's `igb` has and Linux' driver of the same name manages.

use dray_lab::Vm;

use crate::common::{self, DRAY, alone};
use crate::{CARD, FIND_CARD, LIMIT};

/// Two containers with a function each, and who answers at the second.
const PAIR: &str = "\
[[containers]]
name = 'a'
[[containers]]
name = 'b'
run = 'dray echo --port udp:10.0.0.2:9000-10.0.0.1:9000'
[[links]]
kind = 'sriov'
parent = 'CARD'
ends = ['a', 'b']
network = '10.0.0.0/24'";

const FUNCTIONS: &str = "functions = { macs = ['02:00:00:00:00:aa', '02:00:00:00:00:bb'], vlan = 7, \
                         spoof_check = false, trust = true }";

/// What `ip link show` (iproute2's, where the script's own `ip` is BusyBox') says of function `number` of a card.
fn function(said: &str, number: usize) -> &str {
    let line = said.lines().find(|line| line.trim_start().starts_with(&format!("vf {number} ")));
    line.unwrap_or_else(|| panic!("no function {number}: {said}")).trim()
}

#[test]
fn functions_are_what_was_asked_for_and_given_back_as_they_were() {
    let _alone = alone();
    require_vm!();
    let script = format!(
        "set -e
         {FIND_CARD}
         ls /sys/class/net > /tmp/before
         cat > /tmp/usual.toml <<END
{PAIR}
END
         sed -i s,CARD,$card, /tmp/usual.toml
         (cat /tmp/usual.toml; echo \"{FUNCTIONS}\") > /tmp/asked.toml
         dray() {{ {DRAY} \"$@\"; }}
         for lab in usual asked; do
             dray lab up /tmp/$lab.toml
             echo \"== $lab\"
             /sbin/ip -d link show $card
             for end in a b; do
                 echo \"$end has $(dray lab exec $end -- cat /sys/class/net/eth0/address)\"
             done
             echo \"ping: $(dray lab exec a -- \
                 {DRAY} ping --port udp:10.0.0.1:9000-10.0.0.2:9000 --duration 0.5)\"
             # Who is trusted may take another address.
             dray lab exec a -- ip link set eth0 address 02:00:00:00:00:cc && echo changed || echo kept
             dray lab down $lab
             test $(cat $functions) = 0
             ls /sys/class/net | cmp - /tmp/before
         done
         echo 2 > $functions
         echo == after
         /sbin/ip -d link show $card
         for i in $(seq 100); do
             test $(ls -d /sys/bus/pci/drivers/igbvf/*/net/* | wc -l) = 2 && break
             sleep 0.1
         done
         echo \"at the host: $(ls -d /sys/bus/pci/drivers/igbvf/*/net/* | wc -l)\""
    );
    let vm = Vm::new("functions").memory_mib(1024).arguments(CARD).script(&script);
    let output = vm.boot(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    let said = &output.output;
    let part = |name: &str| {
        let rest = said.split_once(&format!("== {name}\n")).unwrap_or_else(|| panic!("{said}")).1;
        rest.split("\n== ").next().unwrap()
    };

    let usual = part("usual");
    for number in [0, 1] {
        let line = function(usual, number);
        // Of the lab's own addresses and VLANs, this is the first link's.
        for what in [", vlan 1, ", ", spoof checking on, ", ", trust off"] {
            assert!(line.contains(what), "{what}: {line}");
        }
    }
    assert!(usual.contains("\nkept\n") && !usual.contains(" 0 came back"), "{usual}");

    let asked = part("asked");
    for (number, end, mac) in [(0, "a", "02:00:00:00:00:aa"), (1, "b", "02:00:00:00:00:bb")] {
        let line = function(asked, number);
        let ether = format!("link/ether {mac} ");
        for what in [&ether, ", vlan 7, ", ", spoof checking off, ", ", trust on"] {
            assert!(line.contains(what), "{what}: {line}");
        }
        assert!(asked.contains(&format!("\n{end} has {mac}\n")), "{asked}");
    }
    assert!(asked.contains("\nchanged\n") && !asked.contains(" 0 came back"), "{asked}");

    let after = part("after");
    for number in [0, 1] {
        let line = function(after, number);
        assert!(!line.contains("vlan") && !line.contains("link/ether 02:00:00:00:00:"), "{line}");
        assert!(line.contains(", spoof checking on, ") && line.contains(", trust off"), "{line}");
    }
    assert!(after.contains("at the host: 2"), "{after}");
}
