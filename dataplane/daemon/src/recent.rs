//! Replies for unknown clients, made anew only some times a second: making one takes CPU time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::http::{Request, Response};

/// Number of times that a reply is made in a second; those of a second may come at once.
const RATE: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// The latest reply of each resource. A client gets one made for it, unless that happens too often.
#[derive(Default)]
pub struct Recent(Mutex<HashMap<Resource, Latest>>);

/// Path, and the format of the reply.
type Resource = (String, bool);

struct Latest {
    reply: Response,
    /// Time at which the replies so far have used up the rate.
    due: Instant,
}

impl Recent {
    /// Returns the reply that `answer` makes, or made at most some tenths of a second ago.
    pub fn answer(&self, request: &Request, answer: impl FnOnce(&Request) -> Response) -> Response {
        // Any other request is refused, which takes little time.
        if request.method != "GET" || !request.query.is_empty() {
            return answer(request);
        }
        let resource = (request.path.trim_matches('/').to_owned(), request.accepts_open_metrics());
        let now = Instant::now();
        if let Some(latest) = self.latest().get_mut(&resource) {
            let next = latest.due.max(now) + SECOND / RATE;
            match latest.reply.copy() {
                Some(reply) if next > now + SECOND => return reply,
                _ => latest.due = next,
            }
        }
        // Without the lock, since a health check may take seconds.
        let made = answer(request);
        // Resources that do not exist are without number.
        if let (200 | 503, Some(reply)) = (made.status, made.copy()) {
            let mut latest = self.latest();
            let due = latest.get(&resource).map_or(now + SECOND / RATE, |latest| latest.due);
            latest.insert(resource, Latest { reply, due });
        }
        made
    }

    fn latest(&self) -> MutexGuard<'_, HashMap<Resource, Latest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn get(path: &str) -> Request {
        Request { method: "GET".to_owned(), path: path.to_owned(), ..Request::default() }
    }

    #[test]
    fn reply_is_made_few_times_a_second() {
        let (recent, made) = (Recent::default(), Cell::new(0));
        let answer = |_: &Request| {
            made.set(made.get() + 1);
            Response::text(200, "text/plain", made.get().to_string())
        };
        let began = Instant::now();
        let bodies: Vec<_> =
            (0..10_000).map(|_| recent.answer(&get("/metrics"), answer).body).collect();
        let most = RATE * (began.elapsed().as_secs() as u32 + 2);
        assert!((RATE..=most).contains(&made.get()), "{made:?}");
        // Each of the first gets its own, and none gets an older one than the one before.
        assert_eq!(bodies[..3], [b"1", b"2", b"3"]);
        assert_eq!(bodies[9_999], made.get().to_string().as_bytes());
        // Other resources have their own.
        let before = made.get();
        recent.answer(&get("/livez"), answer);
        assert_eq!(made.get(), before + 1);
    }

    #[test]
    fn missing_resources_are_not_remembered() {
        let recent = Recent::default();
        for number in 0..100 {
            recent.answer(&get(&format!("/{number}")), |_| Response::text(404, "", String::new()));
        }
        assert!(recent.latest().is_empty());
    }
}
