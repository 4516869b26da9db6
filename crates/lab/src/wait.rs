//! Waiting for what happens in a lab. A wait ends early where the user says so, and where something that
//! the lab needs has ended: a container, what runs it, the switch.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use dray_traffic::agent::Event;
use dray_traffic::{Agreement, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::peer::PeerSwitch;
use crate::runtime::Engine;
use crate::{Cancel, Container, ContainerId, Lab, LabError};

/// How long a role may take to open its ports: hundreds at a time on few CPUs, while the kernel takes
/// down those that were there before.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long an agent may take to say that it is there.
const PATIENCE_UP: Duration = Duration::from_secs(20);

/// From when its sockets are closed a process takes less than this to have ended.
const LINGERING: Duration = Duration::from_millis(100);

impl Lab {
    /// Waits until the container's inside is set up.
    pub(crate) fn wait_until_set_up(&mut self, container: ContainerId) -> Result<(), LabError> {
        match self.event(container, PATIENCE_UP)? {
            Event::Up => Ok(()),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Waits until the role that was started in a container has its ports open; what was agreed on for
    /// them.
    pub fn wait_until_ready(&mut self, container: ContainerId) -> Result<Vec<Agreement>, LabError> {
        match self.event(container, PATIENCE)? {
            Event::Ready(agreements) => Ok(agreements),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Waits until the role that was started in a container has ended, for no longer than `patience`; its
    /// report.
    pub fn wait_until_done(
        &mut self,
        container: ContainerId,
        patience: Duration,
    ) -> Result<Report, LabError> {
        match self.event(container, patience)? {
            Event::Done(report) => Ok(*report),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Sleeps until `until`.
    pub fn sleep_until(&mut self, until: Instant) -> Result<(), LabError> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return self.cancel().check();
            }
            self.wait(rest)?;
        }
    }

    /// The next thing that a container's agent says.
    fn event(&mut self, container: ContainerId, patience: Duration) -> Result<Event, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(event) = self[container].next_event() {
                return Ok(event);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                let what = format!("said nothing for {} s", patience.as_secs());
                return Err(self[container].gone(&what));
            }
            self.wait(rest)?;
        }
    }

    fn unexpected(&self, container: ContainerId, event: &Event) -> LabError {
        self[container].gone(&format!("unexpected answer {event:?}"))
    }

    /// Waits until something has happened, or a moment is over.
    fn wait(&mut self, at_most: Duration) -> Result<(), LabError> {
        self.cancel().check()?;
        let at_most = at_most.min(Cancel::INTERVAL);
        let timeout = Timespec::try_from(at_most).expect("it is short");
        let sign = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut signs: Vec<_> = self.signs().map(sign).collect();
        // An error is a signal, which the next wait looks for.
        match poll(&mut signs, Some(&timeout)) {
            Ok(1..) => self.look(),
            _ => Ok(()),
        }
    }

    fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let containers = self.containers().iter().flat_map(Container::signs);
        let engine = self.engine.iter().flat_map(Engine::signs);
        let switch = self.switch().map(PeerSwitch::sign);
        containers.chain(engine).chain(switch)
    }

    /// Fails where something has ended, or a role has failed.
    fn look(&mut self) -> Result<(), LabError> {
        self.check()?;
        let said = self.containers_mut().iter_mut().try_for_each(Container::take_in);
        said.or_else(|error| {
            // What a role complains of may be the end of another process, which is seen a little later.
            thread::sleep(LINGERING);
            self.check()?;
            Err(error)
        })
    }

    fn check(&mut self) -> Result<(), LabError> {
        let end = self.engine.as_mut().and_then(Engine::end);
        if let Some(end) = end {
            let container = self.containers().iter().find(|container| container.is_by_engine());
            return Err(container.unwrap_or(self.host()).gone(&end));
        }
        self.containers_mut().iter_mut().try_for_each(Container::check)?;
        self.switch().map_or(Ok(()), PeerSwitch::check)
    }
}
