//! Threads of the simulation, or of the system outside of it, with `std`'s interface.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread as real;
use std::time::Duration;

use super::{AccessClass, Simulator, simulator};

/// Nanoseconds of a duration, for the simulation's clock.
fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Identifies a thread: of the system, or of one simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Real(real::ThreadId),
    Simulated(u32),
}

/// A handle to a thread.
#[derive(Clone, Debug)]
pub struct Thread(Handle);

#[derive(Clone, Debug)]
enum Handle {
    Real(real::Thread),
    Simulated(Simulated),
}

#[derive(Clone)]
struct Simulated {
    simulation: u64,
    thread: u32,
    name: Option<Arc<str>>,
}

/// Without the simulation's number, which differs from run to run.
impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Simulated")
            .field(&self.thread)
            .field(&self.name)
            .finish()
    }
}

impl Thread {
    fn simulated(simulator: &dyn Simulator, thread: u32) -> Self {
        let name = simulator.name(thread).map(Arc::from);
        let simulation = simulator.simulation();
        Self(Handle::Simulated(Simulated {
            simulation,
            thread,
            name,
        }))
    }

    /// The thread's identifier.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.0 {
            Handle::Real(thread) => Id::Real(thread.id()),
            Handle::Simulated(simulated) => Id::Simulated(simulated.thread),
        })
    }

    /// The thread's name.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Handle::Real(thread) => thread.name(),
            Handle::Simulated(simulated) => simulated.name.as_deref(),
        }
    }

    /// Wakes the thread from [`park`]. Does nothing to a thread of another simulation than the
    /// caller's, or of one that is over.
    pub fn unpark(&self) {
        match (&self.0, simulator()) {
            (Handle::Real(thread), _) => thread.unpark(),
            (Handle::Simulated(simulated), Some(simulator))
                if simulated.simulation == simulator.simulation() =>
            {
                simulator.unpark(simulated.thread);
            }
            (Handle::Simulated(_), _) => {}
        }
    }
}

/// The calling thread.
pub fn current() -> Thread {
    match simulator() {
        Some(simulator) => Thread::simulated(simulator, simulator.current()),
        None => Thread(Handle::Real(real::current())),
    }
}

/// Waits to be unparked.
pub fn park() {
    match simulator() {
        Some(simulator) => simulator.park(None),
        None => real::park(),
    }
}

pub(crate) fn park_timeout(timeout: Duration) {
    match simulator() {
        Some(simulator) => simulator.park(Some(ns(timeout))),
        None => real::park_timeout(timeout),
    }
}

/// Gives the processor away.
pub fn yield_now() {
    match simulator() {
        Some(simulator) => simulator.yield_now(),
        None => real::yield_now(),
    }
}

pub(crate) fn sleep(duration: Duration) {
    match simulator() {
        Some(simulator) => simulator.sleep(ns(duration)),
        None => real::sleep(duration),
    }
}

/// The end of a simulated thread: what it has returned, until someone takes it.
struct Packet<T>(Mutex<Option<real::Result<T>>>);

impl<T> Packet<T> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<real::Result<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> *const u8 {
        (&raw const *self).cast()
    }

    fn touch(&self, class: AccessClass) {
        super::announce(self.address(), class);
    }
}

/// Owns the right to wait for a thread.
pub struct JoinHandle<T> {
    thread: Thread,
    end: End<T>,
}

enum End<T> {
    Real(real::JoinHandle<T>),
    Simulated(Arc<Packet<T>>),
}

impl<T> JoinHandle<T> {
    /// The thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Waits for the end of the thread; what it has returned, or with what it has panicked.
    ///
    /// # Errors
    ///
    /// If the thread has panicked.
    ///
    /// # Panics
    ///
    /// If the thread belongs to a simulation, and the caller does not.
    pub fn join(self) -> real::Result<T> {
        let packet = match self.end {
            End::Real(handle) => return handle.join(),
            End::Simulated(packet) => packet,
        };
        let simulator = simulator().expect("a simulated thread is joined in its simulation");
        loop {
            packet.touch(AccessClass::Load);
            let result = packet.lock().take();
            if let Some(result) = result {
                return result;
            }
            simulator.wait(packet.address());
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.end {
            End::Real(handle) => handle.is_finished(),
            End::Simulated(packet) => {
                packet.touch(AccessClass::Load);
                packet.lock().is_some()
            }
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.thread).finish()
    }
}

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    name: Option<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let Some(simulator) = simulator() else {
        let mut builder = real::Builder::new();
        if let Some(name) = name {
            builder = builder.name(name);
        }
        let handle = builder.spawn(body)?;
        let thread = Thread(Handle::Real(handle.thread().clone()));
        let end = End::Real(handle);
        return Ok(JoinHandle { thread, end });
    };
    let packet = Arc::new(Packet(Mutex::new(None)));
    let place = packet.clone();
    let body = move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        // As a thread of the system: it has ended when its thread-locals are dropped.
        // SAFETY: the body has returned, and with it each call that has lent a value (1).
        unsafe { simulator.drop_locals() };
        place.touch(AccessClass::Store);
        *place.lock() = Some(result);
        simulator.written(place.address(), 1);
        simulator.wake(place.address(), true);
    };
    let thread = simulator.spawn(name, Box::new(body));
    let thread = thread.ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(JoinHandle {
        thread: Thread::simulated(simulator, thread),
        end: End::Simulated(packet),
    })
}

pub(crate) fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    start(None, body).expect("the system creates a thread")
}
