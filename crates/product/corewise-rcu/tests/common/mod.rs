//! Objects that are poisoned when dropped, a place where readers find one, and readers and writers
//! of such a place.

use std::cell::RefCell;
use std::process::{Command, Output};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU64};
use std::sync::mpsc::channel;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use corewise_rcu::{Domain, Pressure, Section};

const POISON: u64 = 0xdead_dead_dead_dead;

/// An object whose words are equal until it is dropped.
pub(crate) struct Object {
    words: [u64; 8],
    alive: Arc<AtomicIsize>,
}

impl Object {
    pub(crate) fn new(alive: &Arc<AtomicIsize>) -> Box<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        alive.fetch_add(1, Relaxed);
        Box::new(Self {
            words: [NEXT.fetch_add(1, Relaxed); 8],
            alive: alive.clone(),
        })
    }

    pub(crate) fn check(&self) {
        // Reads what is in memory, not what the compiler assumes to be there.
        let words = std::hint::black_box(&self.words);
        assert_ne!(words[0], POISON);
        assert_eq!(*words, [words[0]; 8]);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.check();
        for word in &mut self.words {
            // SAFETY: a word of ours. Volatile, or the compiler could omit the store, since nothing
            // reads it.
            unsafe { ptr::write_volatile(word, POISON) };
        }
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// A place where readers find an object.
pub(crate) struct Published {
    current: AtomicPtr<Object>,
    alive: Arc<AtomicIsize>,
}

impl Published {
    pub(crate) fn new() -> Self {
        let alive = Arc::default();
        Self {
            current: AtomicPtr::new(Box::into_raw(Object::new(&alive))),
            alive,
        }
    }

    /// The number of objects that were in this place and are not dropped.
    pub(crate) fn alive(&self) -> Arc<AtomicIsize> {
        self.alive.clone()
    }

    /// Reads the object, more than once.
    pub(crate) fn read(&self, _section: &impl Section) {
        // Acquire: pairs with the AcqRel in `replace`.
        let object = self.current.load(Acquire);
        // SAFETY: it was here in this section, and is dropped after a grace period.
        let object = unsafe { &*object };
        object.check();
        object.check();
    }

    /// Puts a new object here. The caller must drop the returned old one, from a box, after a grace
    /// period.
    pub(crate) fn replace(&self) -> NonNull<Object> {
        let new = Box::into_raw(Object::new(&self.alive));
        // AcqRel: pairs with the Acquire in `read`, and with itself.
        let old = self.current.swap(new, AcqRel);
        NonNull::new(old).expect("there always is one")
    }

    /// Replaces the object, and defers the drop of the old one. Readers must be in sections of
    /// `domain`.
    pub(crate) fn retire(&self, domain: &Domain) -> Pressure {
        // SAFETY: from a box, and no longer here, so it is deferred once.
        unsafe { domain.defer_drop(self.replace()) }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // SAFETY: the place is not shared.
        drop(unsafe { Box::from_raw(*self.current.get_mut()) });
    }
}

/// Calls `work` in a thread, and what `work` returns when the thread ends and its records are given
/// back. Returns the result of the second call.
pub(crate) fn when_a_thread_ends<R, F>(work: impl FnOnce() -> F + Send + 'static) -> R
where
    F: FnOnce() -> R + 'static,
    R: Send + 'static,
{
    struct Late(Option<Box<dyn FnOnce()>>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|last| last());
        }
    }
    thread_local! {
        static LATE: RefCell<Late> = const { RefCell::new(Late(None)) };
    }
    let (send, receive) = channel();
    let thread = thread::spawn(move || {
        // Used before the thread-locals of the domain, and so dropped after them.
        LATE.with(|_| ());
        let last = work();
        LATE.set(Late(Some(Box::new(move || _ = send.send(last())))));
    });
    thread.join().unwrap();
    receive.recv().unwrap()
}

/// Runs one test of this program in a separate process, with a variable of its environment set.
pub(crate) fn in_a_process(test: &str, variable: &str, value: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap()
}

/// Calls `work` with the number of the round until the time is up.
pub(crate) fn for_a_while(mut work: impl FnMut(usize)) {
    let set = std::env::var("COREWISE_STRESS_MS").ok();
    let millis = set.and_then(|text| text.parse().ok()).unwrap_or(250);
    let end = Instant::now() + Duration::from_millis(millis);
    let mut round = 0;
    while Instant::now() < end {
        work(round);
        round += 1;
    }
}

/// Starts readers whose guards overlap in all ways, and one that is online.
pub(crate) fn spawn_readers<'s>(
    scope: &'s Scope<'s, '_>,
    domain: &'s Domain,
    published: &'s Published,
) {
    scope.spawn(move || for_a_while(|_| published.read(&domain.pin())));
    scope.spawn(move || {
        for_a_while(|_| {
            let outer = domain.pin();
            published.read(&domain.pin());
            let inner = domain.pin();
            drop(outer);
            published.read(&inner);
        });
    });
    scope.spawn(move || {
        let mut qsbr = domain.qsbr();
        for_a_while(|round| {
            published.read(&qsbr.section());
            if round % 8 == 0 {
                qsbr.offline(thread::yield_now);
            }
            published.read(&qsbr.section());
            assert!(qsbr.quiescent());
        });
    });
}

/// Starts writers, outside and inside sections, that defer or wait.
pub(crate) fn spawn_writers<'s>(
    scope: &'s Scope<'s, '_>,
    domain: &'s Domain,
    published: &'s Published,
) {
    scope.spawn(move || {
        for_a_while(|_| {
            published.retire(domain);
        });
    });
    scope.spawn(move || {
        for_a_while(|round| {
            let guard = domain.pin();
            published.read(&guard);
            if round % 64 != 0 {
                published.retire(domain);
            } else {
                let old = published.replace();
                drop(guard);
                domain.synchronize();
                // SAFETY: from a box, and readers have left it.
                drop(unsafe { Box::from_raw(old.as_ptr()) });
            }
        });
    });
}

/// Runs all of these readers and writers on one place.
pub(crate) fn swap_and_read(domain: &Domain) {
    let published = Published::new();
    let alive = published.alive();
    thread::scope(|scope| {
        spawn_readers(scope, domain, &published);
        spawn_writers(scope, domain, &published);
    });
    drop(published);
    domain.barrier();
    assert_eq!(alive.load(Relaxed), 0);
}
