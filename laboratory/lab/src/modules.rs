//! Kernel modules: which features are available without another kernel. No module is loaded.

use std::collections::BTreeSet;

use crate::host::read;

/// Modules that the kernel has loaded or could load.
pub(crate) struct Modules {
    /// Loaded modules; `None` if the kernel was built without loadable modules.
    loaded: Option<BTreeSet<String>>,
    /// Module files; `None` if they are not visible, as in most containers.
    files: Option<Files>,
}

struct Files {
    built_in: BTreeSet<String>,
    loadable: BTreeSet<String>,
}

/// State of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// Loaded, or built into the kernel.
    Present,
    /// The module's file is present; the kernel loads it on first use.
    Loadable,
    /// The module's file is missing.
    NotInstalled,
    /// The kernel cannot load modules, and does not list the built-in ones.
    CannotLoad,
    /// Cannot be determined.
    Unknown,
}

impl Modules {
    /// Reads the modules of the running kernel.
    pub(crate) fn of_running_kernel() -> Self {
        Self::of_kernel(&rustix::system::uname().release().to_string_lossy())
    }

    /// Reads the modules of the running kernel, whose release is `release`.
    pub(crate) fn of_kernel(release: &str) -> Self {
        let file = |name| read(format!("/lib/modules/{release}/{name}"));
        Self {
            loaded: read("/proc/modules").map(|text| {
                text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
            }),
            files: file("modules.dep").map(|loadable| Files {
                built_in: names(&file("modules.builtin").unwrap_or_default()),
                loadable: names(&loadable),
            }),
        }
    }

    /// Returns the state of module `name`, written with underscores.
    pub(crate) fn state(&self, name: &str) -> Module {
        if self.files.as_ref().is_some_and(|files| files.built_in.contains(name)) {
            return Module::Present;
        }
        match (&self.loaded, &self.files) {
            (Some(loaded), _) if loaded.contains(name) => Module::Present,
            (Some(_), Some(files)) if files.loadable.contains(name) => Module::Loadable,
            (Some(_), Some(_)) => Module::NotInstalled,
            (Some(_), None) => Module::Unknown,
            (None, _) => Module::CannotLoad,
        }
    }

    /// Returns how to get module `name`, which the kernel option `option` builds, if it is
    /// unavailable.
    pub(crate) fn remedy(&self, name: &str, option: &str) -> String {
        match self.state(name) {
            Module::Loadable => format!("modprobe {name}"),
            Module::NotInstalled => format!(
                "install its module (Ubuntu: linux-modules-extra-$(uname -r)) or boot a kernel \
                 with {option}"
            ),
            Module::CannotLoad => format!(
                "this kernel was built without it and cannot load modules: boot a distribution's \
                 kernel, or one with {option}"
            ),
            Module::Present | Module::Unknown => {
                format!("modprobe {name} on the host, or boot a kernel with {option}")
            }
        }
    }
}

/// Returns the modules in `modules.dep` or `modules.builtin`: a path to the left of an optional
/// colon. File names use dashes or underscores, the kernel uses underscores.
fn names(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let path = line.split(':').next()?;
        let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
        Some(name.replace('-', "_"))
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_state_follows_kernel_files() {
        let dep = "\
kernel/drivers/net/ipvlan/ipvlan.ko.xz:
kernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko
kernel/net/bridge/bridge.ko:";
        let files = || Files { built_in: names("kernel/drivers/net/tun.ko"), loadable: names(dep) };
        let loaded = Some(BTreeSet::from(["bridge".to_owned()]));
        let modules = Modules { loaded: loaded.clone(), files: Some(files()) };
        assert_eq!(modules.state("bridge"), Module::Present);
        assert_eq!(modules.state("tun"), Module::Present);
        assert_eq!(modules.state("ipvlan"), Module::Loadable);
        assert_eq!(modules.state("vfio_pci"), Module::Loadable);
        assert_eq!(modules.state("openvswitch"), Module::NotInstalled);
        assert_eq!(modules.remedy("ipvlan", "CONFIG_IPVLAN"), "modprobe ipvlan");

        let in_a_container = Modules { loaded, files: None };
        assert_eq!(in_a_container.state("ipvlan"), Module::Unknown);
        let monolithic = Modules { loaded: None, files: None };
        assert_eq!(monolithic.state("bridge"), Module::CannotLoad);
        let remedy = monolithic.remedy("ipvlan", "CONFIG_IPVLAN");
        assert!(remedy.contains("was built without it") && remedy.contains("CONFIG_IPVLAN"));
    }
}
