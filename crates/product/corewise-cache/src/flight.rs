//! One initialiser for each key: the others wait for its value, in threads or in tasks.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Locks also after a panic: what the locks here protect is consistent whenever they are released.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum FlightState<V> {
    Running(Vec<Waker>),
    /// `None`: the initialiser failed, panicked or was dropped.
    Done(Option<V>),
}

/// An initialiser that runs.
pub(crate) struct Flight<V> {
    state: Mutex<FlightState<V>>,
    done: Condvar,
}

impl<V: Clone> Flight<V> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(FlightState::Running(Vec::new())),
            done: Condvar::new(),
        }
    }

    pub(crate) fn finish(&self, value: Option<V>) {
        let before = std::mem::replace(&mut *lock(&self.state), FlightState::Done(value));
        self.done.notify_all();
        if let FlightState::Running(wakers) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Blocks the thread. `None`: the caller tries again.
    pub(crate) fn wait(&self) -> Option<V> {
        let mut state = lock(&self.state);
        loop {
            match &*state {
                FlightState::Done(value) => return value.clone(),
                FlightState::Running(_) => {
                    state = self
                        .done
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Option<V>> {
        match &mut *lock(&self.state) {
            FlightState::Done(value) => Poll::Ready(value.clone()),
            FlightState::Running(wakers) => {
                if !wakers.iter().any(|w| w.will_wake(context.waker())) {
                    wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
