//! CPU time of roles.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// CPU time of one role, or of all roles, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuCost {
    /// Time in user mode.
    pub user_s: f64,
    /// Time in the kernel, without soft interrupts.
    pub system_s: f64,
    /// Time in soft interrupts.
    pub softirq_s: f64,
    /// Part of this time that was spent polling without finding work. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_s: Option<f64>,
}

impl CpuCost {
    /// Sum of user, system and soft interrupt time.
    pub fn total_s(&self) -> f64 {
        self.user_s + self.system_s + self.softirq_s
    }
}

impl std::ops::AddAssign for CpuCost {
    fn add_assign(&mut self, other: Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.softirq_s += other.softirq_s;
        self.polling_s = match (self.polling_s, other.polling_s) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cpu {
    /// CPU time by role.
    pub roles: BTreeMap<String, CpuCost>,
    /// CPU time of all roles.
    pub total: CpuCost,
    /// Measured time over which the CPU time was spent, in seconds.
    pub elapsed_s: f64,
}

impl Cpu {
    /// Adds the CPU time that the roles spent over `measure`.
    pub fn add(&mut self, roles: &[(String, CpuCost)], measure: Duration) {
        for (role, cost) in roles {
            *self.roles.entry(role.clone()).or_default() += *cost;
            self.total += *cost;
        }
        self.elapsed_s += measure.as_secs_f64();
    }

    /// Returns the number of busy cores.
    pub fn cores(&self) -> f64 {
        self.total.total_s() / self.elapsed_s
    }
}
