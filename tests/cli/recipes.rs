//! Runs the commands of docs/recipes.md as they are printed there, and compares their output with
//! what the page says. Each recipe runs in namespaces of its own, with an empty /run, and ends with
//! them.

use std::fs;
use std::time::Duration;

use crate::common::{self, alone};
use crate::pages::{TOP, blocks, is_installed, run};

/// Longest time of a recipe. Those with a guest or an engine take half a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A section of the page, and what its commands need.
#[derive(Clone, Copy)]
struct Recipe {
    heading: &'static str,
    /// Programs or files, each with the package that has it.
    needs: &'static [(&'static str, &'static str)],
    /// Name of a script in tests/cli/recipes, without `.sh`: it prepares what the user already
    /// has.
    setup: Option<&'static str>,
}

const RECIPES: &[Recipe] = &[
    Recipe { heading: "DPDK testpmd", needs: &[("dpdk-testpmd", "dpdk-dev")], setup: None },
    Recipe {
        heading: "C program",
        needs: &[
            ("gcc", "gcc"),
            ("pkg-config", "pkg-config"),
            ("/usr/include/dpdk/rte_ethdev.h", "libdpdk-dev"),
        ],
        setup: None,
    },
    Recipe {
        heading: "QEMU guest",
        needs: &[
            ("ping", "iputils-ping"),
            ("/var/cache/dray/vm/initrd", "the files of scripts/setup-vm.sh"),
        ],
        setup: Some("qemu"),
    },
    Recipe {
        heading: "Docker",
        needs: &[("dockerd", "docker.io"), ("docker", "docker.io")],
        setup: Some("docker"),
    },
    Recipe {
        heading: "Podman, rootless",
        needs: &[("podman", "podman"), ("newuidmap", "uidmap")],
        setup: Some("podman"),
    },
    Recipe {
        heading: "Podman, a port as a device",
        needs: &[("podman", "podman"), ("crun", "crun")],
        setup: Some("podman-root"),
    },
    Recipe {
        heading: "LXC container",
        needs: &[("lxc-start", "lxc"), ("lxc-attach", "lxc")],
        setup: Some("lxc"),
    },
    Recipe { heading: "Capture with tshark", needs: &[("tshark", "tshark")], setup: None },
    Recipe {
        heading: "VPP",
        needs: &[("vpp", "VPP, see fd.io"), ("vppctl", "VPP, see fd.io")],
        setup: None,
    },
];

/// Runs a section of the page, or skips it for a reason that names what is missing.
fn recipe(heading: &str) {
    let _alone = alone();
    require_root!();
    let recipe = RECIPES.iter().find(|recipe| recipe.heading == heading).expect("a recipe");
    if let Some((program, package)) = recipe.needs.iter().find(|(name, _)| !is_installed(name)) {
        common::skip(&format!("{heading}: {program} is missing; install {package}"));
        return;
    }
    let page = fs::read_to_string(format!("{TOP}/docs/recipes.md")).unwrap();
    let mut blocks = blocks(&page);
    blocks.retain(|block| block.heading == heading);
    if let Err(why) = run(&blocks, recipe.setup, LIMIT) {
        panic!("docs/recipes.md, {heading}: {why}");
    }
}

#[test]
fn testpmd_recipe_works_with_dpdk() {
    recipe("DPDK testpmd");
}

#[test]
fn qemu_recipe_works_with_vm() {
    recipe("QEMU guest");
}

#[test]
fn docker_recipe_works_with_engines() {
    recipe("Docker");
}

#[test]
fn lxc_recipe_works_with_engines() {
    recipe("LXC container");
}

#[test]
fn tshark_recipe_works() {
    recipe("Capture with tshark");
}

#[test]
fn podman_recipe_works_with_engines() {
    recipe("Podman, rootless");
}

#[test]
fn cdi_recipe_works_with_engines() {
    recipe("Podman, a port as a device");
}

#[test]
fn c_recipe_works_with_dpdk() {
    recipe("C program");
}

#[test]
#[ignore = "Debian has no package of VPP"]
fn vpp_recipe_works_with_dpdk() {
    recipe("VPP");
}

#[test]
fn every_recipe_is_run_and_has_output() {
    let source = include_str!("recipes.rs");
    let page = fs::read_to_string(format!("{TOP}/docs/recipes.md")).unwrap();
    let blocks = blocks(&page);
    for block in &blocks {
        let (line, heading) = (block.line, block.heading);
        assert!(
            RECIPES.iter().any(|recipe| recipe.heading == heading),
            "docs/recipes.md, line {line}: no test has the recipe {heading:?}"
        );
        let known = block.info == "text" || block.info.split(' ').next() == Some("sh");
        assert!(known, "docs/recipes.md, line {line}: a block of {:?}", block.info);
    }
    for Recipe { heading, .. } in RECIPES {
        let test = format!("    recipe({heading:?});\n");
        assert!(source.contains(&test), "no test runs the recipe {heading:?}");
        let mut infos = blocks.iter().filter(|b| b.heading == *heading).map(|block| block.info);
        assert!(infos.next() == Some("sh") && infos.any(|info| info == "text"), "{heading:?}");
    }
}

#[test]
fn broken_recipe_fails() {
    let _alone = alone();
    require_root!();
    let judge = |page: &str| run(&blocks(page), None, Duration::from_secs(5));
    let good = "## A\n```sh\nmkdir -p /run/dray\ndray switch &\nsleep 0.5; dray switch ports >/dev/null\n\
                echo 3 of 5, 1.50 ms, more\nkill %1\n```\n```text\n3 of 5, 7.25 ms, ...\n```\n";
    assert_eq!(judge(good), Ok(()));
    let wrong = judge(&good.replace("\n3 of", "\n4 of")).unwrap_err();
    assert!(wrong.starts_with("line 10: no \"4 of 5, 7.25 ms, ...\" in:"), "{wrong}");
    let failing = judge(&good.replace("switch ports", "switch prots")).unwrap_err();
    assert!(failing.starts_with("exit status: 2") && failing.contains("prots"), "{failing}");
    let endless = judge(&good.replace("kill", "sleep 60; kill")).unwrap_err();
    assert!(endless.starts_with("not done after 5s"), "{endless}");
    let second = judge(&format!("{good}```sh\necho 2\n```\n```text\n3 of 5, 7.25 ms, ...\n```\n"));
    assert!(second.unwrap_err().starts_with("line 16: no \"3 of"));
}
