//! Sessions with a time to live: requests extend them, and a sweeper removes those that have
//! expired, but none that a request extends at the same moment.
//!
//! A request is a task that waits for a database, and may be resumed on another thread: it holds
//! its session by a handle that may move.
//!
//! ```text
//! cargo run --release -p corewise-maps --example session_store
//! ```

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use corewise_maps::RelativisticMap;

/// Seconds that a session lasts after its last request.
const LIFETIME_S: u64 = 60;

#[derive(Clone, Debug, PartialEq)]
struct Session {
    user: String,
    requests: u64,
    expires_s: u64,
}

#[derive(Default)]
struct Sessions(RelativisticMap<u64, Session>);

impl Sessions {
    fn begin(&self, id: u64, user: &str, now_s: u64) {
        let session = Session {
            user: user.to_owned(),
            requests: 0,
            expires_s: now_s + LIFETIME_S,
        };
        self.0.insert(id, session);
    }

    /// Serves a request: extends the session, and waits for the database with it.
    async fn serve(&self, id: u64, now_s: u64) -> Option<String> {
        // Not `pin`: a future that holds such a handle could not go to another thread.
        let sessions = self.0.pin_owned();
        let session = sessions.update(&id, |session| Session {
            user: session.user.clone(),
            requests: session.requests + 1,
            expires_s: now_s + LIFETIME_S,
        })?;
        let greeting = query().await;
        // The session is still here, though it may have been replaced or removed meanwhile.
        Some(format!(
            "{greeting}, {} ({})",
            session.user, session.requests
        ))
    }

    /// Removes the sessions that have expired; returns their number.
    fn sweep(&self, now_s: u64) -> usize {
        let sessions = self.0.pin();
        let is_expired = |session: &Session| session.expires_s <= now_s;
        let candidates = sessions.iter().filter(|(_, session)| is_expired(session));
        // Asks again while it removes: a request may have extended the session since.
        let removed = candidates.filter(|(id, _)| {
            let removed = sessions.remove_if(*id, |_, session| is_expired(session));
            matches!(removed, Ok(Some(_)))
        });
        removed.count()
    }
}

/// A database that needs a moment.
async fn query() -> &'static str {
    struct Moment(bool);
    impl Future for Moment {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            match std::mem::replace(&mut self.0, true) {
                false => Poll::Pending,
                true => Poll::Ready(()),
            }
        }
    }
    Moment(false).await;
    "hello"
}

fn main() {
    let sessions = Sessions::default();
    sessions.begin(1, "ada", 0);
    sessions.begin(2, "grace", 0);

    let mut request = pin!(sessions.serve(1, 50));
    let mut resume = || {
        request
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    assert_eq!(resume(), Poll::Pending);
    // While the request waits, the sweeper runs: the session was extended, so it stays.
    assert_eq!(sessions.sweep(70), 1);
    assert!(sessions.0.contains_key(&1) && !sessions.0.contains_key(&2));
    // Now it goes, and the request still has it.
    assert_eq!(sessions.sweep(500), 1);
    let answer = std::thread::scope(|scope| scope.spawn(resume).join().expect("no panic"));
    assert_eq!(answer, Poll::Ready(Some("hello, ada (1)".to_owned())));

    assert!(sessions.0.is_empty());
    println!("{answer:?}");
}
