//! Facts about the host, from the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dray_results::{Cache, HostFacts, HugepagePool};
use rustix::system::uname;

use crate::placement::{parse_ranges, ranges};

const CPUS: &str = "/sys/devices/system/cpu";

/// Collects the facts from the kernel. Needs no privilege and never fails.
pub fn facts() -> HostFacts {
    let uname = uname();
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let cpus = read_list(&format!("{CPUS}/online")).unwrap_or_else(|| vec![0]);
    let of_each = |file: &str| -> Vec<String> {
        cpus.iter().filter_map(|cpu| read(format!("{CPUS}/cpu{cpu}/{file}"))).collect()
    };
    let siblings = of_each("topology/thread_siblings_list");
    let cores = siblings.iter().collect::<BTreeSet<_>>().len();
    let threads = siblings.iter().filter_map(|list| Some(parse_ranges(list)?.len())).max();
    let governors: BTreeSet<_> = of_each("cpufreq/scaling_governor").into_iter().collect();
    HostFacts {
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        os: read("/etc/os-release")
            .or_else(|| read("/usr/lib/os-release"))
            .and_then(|text| pretty_name(&text)),
        cpu_model: cpu_model(&cpuinfo),
        cpus: ranges(&cpus),
        cores: if cores == 0 { cpus.len() } else { cores },
        threads_per_core: threads.unwrap_or(1).max(1),
        numa_nodes: read_list("/sys/devices/system/node/online").map_or(1, |n| n.len().max(1)),
        caches: caches(&cpus),
        isolated_cpus: read(format!("{CPUS}/isolated")).unwrap_or_default(),
        governor: (!governors.is_empty())
            .then(|| governors.into_iter().collect::<Vec<_>>().join(",")),
        constant_tsc: has_cpu_flags(&cpuinfo, &["constant_tsc", "nonstop_tsc"]),
        memory_bytes: read("/proc/meminfo").and_then(|text| memory_bytes(&text)),
        hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
        virtualization: virtualization(&cpuinfo),
        mitigations: read("/proc/cmdline").and_then(|text| boot_parameter(&text, "mitigations")),
    }
}

/// Reads a small kernel file, trimmed; `None` if it cannot be read.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).trim().to_owned())
}

fn read_list(path: &str) -> Option<Vec<usize>> {
    parse_ranges(&read(path)?)
}

/// Lists the names in a directory, sorted; empty if it cannot be read.
pub(crate) fn list(path: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the folder of the PCI function that a device belongs to: the device itself, or for a
/// device of virtio or of a function's auxiliary bus, which is below its function, that function. A
/// device on another bus is returned as it is.
pub(crate) fn pci_function(device: PathBuf) -> PathBuf {
    let bus = |path: &Path| {
        let bus = fs::read_link(path.join("subsystem")).ok()?;
        Some(bus.file_name()?.to_string_lossy().into_owned())
    };
    match bus(&device).as_deref() {
        Some("virtio" | "auxiliary") => {
            let function = device.ancestors().find(|path| bus(path).as_deref() == Some("pci"));
            function.map(Path::to_owned).unwrap_or(device)
        }
        _ => device,
    }
}

/// Reads `PRETTY_NAME` out of an os-release(5) file.
fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// First value of a field of `/proc/cpuinfo`.
fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let value = fields.into_iter().find(|(key, _)| key.trim() == name)?.1.trim();
    (!value.is_empty()).then_some(value)
}

/// Processor model: x86 and some others give a name, Arm gives numbers for implementer and part.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name| cpuinfo_field(cpuinfo, name);
    if let Some(model) = field("model name").or_else(|| field("cpu model")) {
        return Some(model.to_owned());
    }
    Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?))
}

/// Returns true if the CPU has all of the `wanted` flags (x86).
pub(crate) fn has_cpu_flags(cpuinfo: &str, wanted: &[&str]) -> bool {
    let flags: Vec<_> =
        cpuinfo_field(cpuinfo, "flags").unwrap_or_default().split_whitespace().collect();
    wanted.iter().all(|flag| flags.contains(flag))
}

/// Value of `name=value` on the kernel's command line; the last occurrence counts.
pub(crate) fn boot_parameter(command_line: &str, name: &str) -> Option<String> {
    let words = command_line.split_whitespace();
    let ours = words.take_while(|word| *word != "--").filter_map(|word| word.split_once('='));
    ours.filter(|(key, _)| *key == name).last().map(|(_, value)| value.to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Parses a cache size such as `48K`.
fn cache_bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G'])? {
        number if text.ends_with('K') => (number, 1 << 10),
        number if text.ends_with('M') => (number, 1 << 20),
        number => (number, 1 << 30),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn caches(cpus: &[usize]) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for cpu in cpus {
        let directory = format!("{CPUS}/cpu{cpu}/cache");
        for index in list(&directory) {
            let field = |name| read(format!("{directory}/{index}/{name}"));
            let one = || {
                Some(Cache {
                    level: field("level")?.parse().ok()?,
                    kind: field("type")?.to_lowercase(),
                    bytes: cache_bytes(&field("size")?)?,
                    shared_by: vec![field("shared_cpu_list")?],
                })
            };
            if let Some(cache) = one() {
                add_cache(&mut found, cache);
            }
        }
    }
    found.sort_by(|a, b| (a.level, &a.kind, a.bytes).cmp(&(b.level, &b.kind, b.bytes)));
    found
}

/// Adds a cache unless it is known: every CPU lists its caches, so a shared one appears repeatedly.
fn add_cache(found: &mut Vec<Cache>, cache: Cache) {
    let same = |known: &&mut Cache| {
        (known.level, &known.kind, known.bytes) == (cache.level, &cache.kind, cache.bytes)
    };
    let Some(known) = found.iter_mut().find(same) else {
        found.push(cache);
        return;
    };
    for cpus in cache.shared_by {
        if !known.shared_by.contains(&cpus) {
            known.shared_by.push(cpus);
        }
    }
}

fn hugepages(directory: &Path) -> Vec<HugepagePool> {
    let pool = |name: String| {
        let count = |file| read(directory.join(&name).join(file))?.parse().ok();
        Some(HugepagePool {
            size_bytes: hugepage_size(&name)?,
            total: count("nr_hugepages")?,
            free: count("free_hugepages")?,
        })
    };
    let mut pools: Vec<_> = list(directory).into_iter().filter_map(pool).collect();
    pools.sort_by_key(|pool| pool.size_bytes);
    pools
}

/// Parses the page size from a directory name such as `hugepages-2048kB`.
fn hugepage_size(directory: &str) -> Option<u64> {
    let kilobytes = directory.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

fn virtualization(cpuinfo: &str) -> Option<String> {
    let xen = read("/sys/hypervisor/type");
    // A CPU without the hypervisor flag may still be virtual: Arm has no such flag.
    let is_guest = has_cpu_flags(cpuinfo, &["hypervisor"])
        || xen.is_some()
        || Path::new("/proc/device-tree/hypervisor").exists();
    let dmi = |file| read(format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
    name_hypervisor(is_guest, xen, &dmi("sys_vendor"), &dmi("product_name"))
}

fn name_hypervisor(
    is_guest: bool,
    xen: Option<String>,
    vendor: &str,
    product: &str,
) -> Option<String> {
    let name = xen.unwrap_or_else(|| format!("{vendor} {product}").trim().to_owned());
    // These vendor names appear only on virtual machines.
    let always = ["QEMU", "VMware", "innotek", "Xen"].iter().any(|maker| vendor.contains(maker));
    (is_guest || always).then(|| if name.is_empty() { "yes".to_owned() } else { name })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn device_on_another_bus_belongs_to_the_function_above() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for (path, bus) in [
            ("0000:01:00.0", "pci"),
            ("0000:01:00.0/virtio0", "virtio"),
            ("0000:01:00.0/mlx5_core.sf.2", "auxiliary"),
            ("0000:01:00.0/usb1", "usb"),
            ("vmbus_0", "vmbus"),
            ("virtio9", "virtio"),
        ] {
            fs::create_dir(at(path)).unwrap();
            symlink(format!("../../bus/{bus}"), at(path).join("subsystem")).unwrap();
        }
        for (device, function) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("0000:01:00.0/virtio0", "0000:01:00.0"),
            ("0000:01:00.0/mlx5_core.sf.2", "0000:01:00.0"),
            // A USB adapter is no function of its controller.
            ("0000:01:00.0/usb1", "0000:01:00.0/usb1"),
            ("vmbus_0", "vmbus_0"),
            ("virtio9", "virtio9"),
            ("absent", "absent"),
        ] {
            assert_eq!(pci_function(at(device)), at(function));
        }
    }

    const X86: &str = "\
processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: 167
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu tsc constant_tsc nonstop_tsc hypervisor
power management:

processor\t: 1
model name\t: another
";

    #[test]
    fn parses_cpuinfo() {
        assert_eq!(cpu_model(X86).as_deref(), Some("Intel(R) Xeon(R) Processor"));
        assert!(has_cpu_flags(X86, &["constant_tsc", "nonstop_tsc"]));
        assert!(!has_cpu_flags(X86, &["constant_tsc", "cat_l3"]));
        assert!(!has_cpu_flags("", &["tsc"]));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_model("power management:\n"), None);
    }

    #[test]
    fn reads_small_files() {
        let os = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty_name(os).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(pretty_name("ID=debian\n"), None);
        assert_eq!(memory_bytes("MemTotal:   16 kB\nMemFree: 1 kB\n"), Some(16384));
        assert_eq!(memory_bytes("MemTotal: many kB\n"), None);
        assert_eq!(hugepage_size("hugepages-2048kB"), Some(2 << 20));
        assert_eq!(hugepage_size("hugepages-xkB"), None);
    }

    #[test]
    fn last_kernel_parameter_wins_and_init_ignored() {
        let line = "quiet mitigations=off mitigations=auto,nosmt ro -- mitigations=init";
        assert_eq!(boot_parameter(line, "mitigations").as_deref(), Some("auto,nosmt"));
        assert_eq!(boot_parameter("quiet nomitigations=x", "mitigations"), None);
    }

    #[test]
    fn caches_are_grouped_by_kind() {
        assert_eq!(cache_bytes("48K"), Some(48 << 10));
        assert_eq!(cache_bytes("32M"), Some(32 << 20));
        for wrong in ["", "48", "K", "99999999999999999999K", "18446744073709551615G"] {
            assert_eq!(cache_bytes(wrong), None, "{wrong}");
        }

        let cache = |level, bytes, cpus: &str| Cache {
            level,
            kind: "unified".to_owned(),
            bytes,
            shared_by: vec![cpus.to_owned()],
        };
        let mut found = Vec::new();
        for cpus in ["0,2", "1,3", "0,2", "1,3"] {
            add_cache(&mut found, cache(2, 1 << 20, cpus));
            add_cache(&mut found, cache(3, 8 << 20, "0-3"));
        }
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].shared_by, ["0,2", "1,3"]);
        assert_eq!(found[1].shared_by, ["0-3"]);
    }

    #[test]
    fn hypervisors_by_name() {
        let named = |guest, vendor, product| name_hypervisor(guest, None, vendor, product);
        assert_eq!(named(false, "Dell Inc.", "PowerEdge R650"), None);
        assert_eq!(named(true, "Amazon EC2", "m6i.large").as_deref(), Some("Amazon EC2 m6i.large"));
        assert_eq!(named(false, "QEMU", "").as_deref(), Some("QEMU"));
        assert_eq!(named(true, "", "").as_deref(), Some("yes"));
    }

    #[test]
    fn host_facts_round_trip_through_json() {
        let facts = facts();
        assert!(!facts.kernel.is_empty() && facts.cores > 0 && facts.threads_per_core > 0);
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
    }
}
