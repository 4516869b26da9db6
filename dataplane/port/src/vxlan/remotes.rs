//! The other hosts of the network, by number: those of the list first, then those that were learned.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of hosts that are not in the list.
const LEARNED_MAX: usize = 1024;

/// Addresses of the learned hosts, for the transmitting half.
#[derive(Clone, Default)]
pub(super) struct Learned(Arc<Mutex<Vec<SocketAddr>>>);

impl Learned {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hosts that frames are accepted from.
pub(super) struct Sources {
    numbers: HashMap<IpAddr, u16>,
    /// Number of hosts in the list.
    listed: usize,
    /// The others, if any host is accepted.
    any: Option<Any>,
    /// Messages often come in trains from one host.
    last: Option<(IpAddr, u16)>,
}

struct Any {
    learned: Learned,
    /// Destination port of all of them.
    port: u16,
    age_s: u32,
    /// Second in which a message last arrived, by number without the listed ones.
    seen: Vec<u32>,
}

impl Sources {
    pub(super) fn listed(remotes: &[SocketAddr]) -> Self {
        let number = |(number, remote): (usize, &SocketAddr)| (remote.ip(), number as u16);
        let numbers = remotes.iter().enumerate().map(number).collect();
        Self { numbers, listed: remotes.len(), any: None, last: None }
    }

    /// Accepts other hosts as well. They are sent frames at `port`, and forgotten after `age_s` if
    /// there are too many.
    pub(super) fn any(remotes: &[SocketAddr], learned: Learned, port: u16, age_s: u32) -> Self {
        let any = Any { learned, port, age_s, seen: Vec::new() };
        Self { any: Some(any), ..Self::listed(remotes) }
    }

    /// Returns the number of the host at `ip`, or `None` if its frames are not accepted. `now` is in
    /// seconds.
    #[inline]
    pub(super) fn number(&mut self, ip: IpAddr, now: u32) -> Option<u16> {
        if let Some((last, number)) = self.last
            && last == ip
        {
            self.touch(number, now);
            return Some(number);
        }
        let number = self.numbers.get(&ip).copied().or_else(|| self.add(ip, now))?;
        self.touch(number, now);
        self.last = Some((ip, number));
        Some(number)
    }

    #[inline]
    fn touch(&mut self, number: u16, now: u32) {
        if let Some(any) = &mut self.any
            && let Some(at) = usize::from(number).checked_sub(self.listed)
        {
            any.seen[at] = now;
        }
    }

    #[cold]
    fn add(&mut self, ip: IpAddr, now: u32) -> Option<u16> {
        let any = self.any.as_mut()?;
        let address = SocketAddr::new(ip, any.port);
        let mut learned = any.learned.lock();
        let at = if learned.len() < LEARNED_MAX {
            learned.push(address);
            any.seen.push(now);
            learned.len() - 1
        } else {
            // Stations behind a host are as old as the host, or older: they were forgotten before.
            let (at, seen) = any.seen.iter().enumerate().min_by_key(|(_, seen)| **seen)?;
            if now.saturating_sub(*seen) <= any.age_s {
                return None;
            }
            self.numbers.remove(&learned[at].ip());
            self.last = None;
            learned[at] = address;
            at
        };
        drop(learned);
        let number = (self.listed + at) as u16;
        self.numbers.insert(ip, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ip(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn only_listed_hosts_are_accepted() {
        let remotes = [1, 2].map(|number| SocketAddr::new(ip(number), 4789));
        let mut sources = Sources::listed(&remotes);
        let numbers = [1, 2, 2, 3, 1].map(|number| sources.number(ip(number), 0));
        assert_eq!(numbers, [Some(0), Some(1), Some(1), None, Some(0)]);
    }

    #[test]
    fn silent_hosts_make_room_for_others() {
        let learned = Learned::default();
        let remotes = [SocketAddr::new(ip(0), 4790)];
        let mut sources = Sources::any(&remotes, learned.clone(), 4789, 10);
        for number in 0..=LEARNED_MAX as u32 {
            assert_eq!(sources.number(ip(number), number / 1000), Some(number as u16));
        }
        let other = ip(5000);
        assert_eq!(sources.number(other, 10), None);
        assert_eq!(sources.number(ip(1), 11), Some(1));
        // The first one that was silent.
        assert_eq!(sources.number(other, 11), Some(2));
        assert_eq!(learned.lock()[1], SocketAddr::new(other, 4789));
        assert_eq!(sources.number(ip(2), 11), Some(3));
        assert_eq!(sources.number(ip(1), 11), Some(1));
    }
}
