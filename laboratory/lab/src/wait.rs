//! Waiting for events in a lab. A wait ends early if the user cancels it, or if something that the
//! lab needs has ended: a container, a process that runs it, the switch.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use dray_traffic::agent::Event;
use dray_traffic::{Agreement, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::peer::PeerSwitch;
use crate::runtime::Engine;
use crate::{Cancel, Container, ContainerId, Lab, LabError};

/// Time limit for an agent to report that it is up, and for a role to open its ports, of which it
/// may open hundreds at a time on few CPUs, while the kernel takes down earlier ones. It restarts
/// when the role reports progress: a million sessions take 23 s in a program for tests that has a
/// CPU to itself, and minutes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Upper bound on the time from the closing of a process's sockets to its end.
const LINGERING: Duration = Duration::from_millis(100);

impl Lab {
    /// Waits until the inside of the container is set up.
    pub(crate) fn wait_until_set_up(&mut self, container: ContainerId) -> Result<(), LabError> {
        match self.event(container, TIMEOUT)? {
            Event::Up => Ok(()),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Waits until the role started in a container has opened its ports; returns the agreements
    /// negotiated for them.
    pub fn wait_until_ready(&mut self, container: ContainerId) -> Result<Vec<Agreement>, LabError> {
        match self.event(container, TIMEOUT)? {
            Event::Ready(agreements) => Ok(agreements),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Waits at most `timeout` for the role started in a container to end; returns its report.
    pub fn wait_until_done(
        &mut self,
        container: ContainerId,
        timeout: Duration,
    ) -> Result<Report, LabError> {
        match self.event(container, timeout)? {
            Event::Done(report) => Ok(*report),
            other => Err(self.unexpected(container, &other)),
        }
    }

    /// Sleeps until `until`.
    pub fn sleep_until(&mut self, until: Instant) -> Result<(), LabError> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(self.cancel().check()?);
            }
            self.wait(rest)?;
        }
    }

    /// Waits for the next event from a container's agent, at most `timeout` from the last progress.
    fn event(&mut self, container: ContainerId, timeout: Duration) -> Result<Event, LabError> {
        let mut deadline = Instant::now() + timeout;
        loop {
            while let Some(event) = self[container].next_event() {
                if event != Event::Progress {
                    return Ok(event);
                }
                deadline = Instant::now() + timeout;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                let what = format!("no message from its agent for {} s", timeout.as_secs());
                return Err(self[container].failure(&what));
            }
            self.wait(rest)?;
        }
    }

    fn unexpected(&self, container: ContainerId, event: &Event) -> LabError {
        self[container].failure(&format!("unexpected message {event:?}"))
    }

    /// Waits until an event has occurred, for at most `at_most` or one check interval.
    fn wait(&mut self, at_most: Duration) -> Result<(), LabError> {
        self.cancel().check()?;
        let at_most = at_most.min(Cancel::INTERVAL);
        let timeout = Timespec::try_from(at_most).expect("a short timeout");
        let sign = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut signs: Vec<_> = self.signs().map(sign).collect();
        // An error is an interrupting signal, which the next wait checks for.
        match poll(&mut signs, Some(&timeout)) {
            Ok(1..) => self.read_events(),
            _ => Ok(()),
        }
    }

    fn signs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let containers = self.containers().iter().flat_map(Container::signs);
        let engine = self.engine.iter().flat_map(Engine::signs);
        let switch = self.switch().into_iter().flat_map(PeerSwitch::signs);
        containers.chain(engine).chain(switch)
    }

    /// Reads what containers have sent; fails if a process has ended or a role has failed.
    fn read_events(&mut self) -> Result<(), LabError> {
        self.check()?;
        let received = self.containers_mut().iter_mut().try_for_each(Container::receive_events);
        received.or_else(|error| {
            // A role may report an error because another process ended, which becomes visible
            // slightly later.
            thread::sleep(LINGERING);
            self.check()?;
            Err(error)
        })
    }

    fn check(&mut self) -> Result<(), LabError> {
        let end = self.engine.as_mut().and_then(Engine::end);
        if let Some(end) = end {
            let container = self.containers().iter().find(|container| container.is_by_engine());
            return Err(container.unwrap_or(self.host()).failure(&end));
        }
        self.containers_mut().iter_mut().try_for_each(Container::check)?;
        self.switch().map_or(Ok(()), PeerSwitch::check)
    }
}
