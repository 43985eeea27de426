//! The accesses of a section.

use std::marker::PhantomData;

use corewise_atomic::sync::atomic::Ordering::{self, Acquire, Release};
use corewise_atomic::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

use super::{Abort, Subscription};
use crate::RawLock;

mod sealed {
    pub trait Sealed {}
}

/// An atomic that a section can access. Sealed; all atomics of the façade are.
pub trait TxAtomic: sealed::Sealed + Sync {
    /// Its value.
    type Value: Copy;
    /// Loads the value.
    #[doc(hidden)]
    fn get(&self, order: Ordering) -> Self::Value;
    /// Stores a value.
    #[doc(hidden)]
    fn set(&self, value: Self::Value, order: Ordering);
    /// The value as a number, and back.
    #[doc(hidden)]
    fn to_bits(value: Self::Value) -> u64;
    #[doc(hidden)]
    fn of_bits(bits: u64) -> Self::Value;
}

macro_rules! tx_atomic {
    ($($atomic:ident, $value:ty, $to:expr, $of:expr);* $(;)?) => {$(
        impl sealed::Sealed for $atomic {}
        impl TxAtomic for $atomic {
            type Value = $value;
            #[inline(always)]
            fn get(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn set(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            fn to_bits(value: $value) -> u64 {
                $to(value)
            }
            fn of_bits(bits: u64) -> $value {
                $of(bits)
            }
        }
    )*};
}
tx_atomic! {
    AtomicBool, bool, u64::from, |bits| bits != 0;
    AtomicU8, u8, u64::from, |bits| bits as u8;
    AtomicU16, u16, u64::from, |bits| bits as u16;
    AtomicU32, u32, u64::from, |bits| bits as u32;
    AtomicU64, u64, |value| value, |bits| bits;
    AtomicUsize, usize, |value| value as u64, |bits| bits as usize;
}

impl<T> sealed::Sealed for AtomicPtr<T> {}
impl<T> TxAtomic for AtomicPtr<T> {
    type Value = *mut T;
    #[inline(always)]
    fn get(&self, order: Ordering) -> *mut T {
        self.load(order)
    }
    #[inline(always)]
    fn set(&self, value: *mut T, order: Ordering) {
        self.store(value, order);
    }
    fn to_bits(value: *mut T) -> u64 {
        value.expose_provenance() as u64
    }
    fn of_bits(bits: u64) -> *mut T {
        std::ptr::with_exposed_provenance_mut(bits as usize)
    }
}

/// A source of transactions: [`Rtm`](super::Rtm), or [`Scripted`](super::Scripted) for tests.
///
/// # Safety
///
/// An implementation guarantees:
///
/// 1. *Atomicity.* An attempt that returns `Ok` took effect at one instant, at which the lock was
///    not held in the sense of the subscription; one that returns an error had no effect.
/// 2. *Isolation.* No other thread sees the effects of an attempt before that instant.
/// 3. *Opacity.* If the subscription reads the lock at begin, all values that the section loads
///    existed together at one instant, at which no thread held the lock.
pub unsafe trait Transaction: Copy + Send + Sync + 'static {
    /// Whether a section may begin inside of another one's transaction.
    #[doc(hidden)]
    const NESTS: bool;

    /// Runs `section` as a transaction.
    #[doc(hidden)]
    fn attempt<L: RawLock, R>(
        self,
        lock: Subscription<'_, L>,
        section: impl FnOnce() -> R,
    ) -> Result<R, Abort>;

    /// Whether the thread is in a transaction.
    #[doc(hidden)]
    fn is_active(self) -> bool;

    /// Aborts the thread's transaction.
    ///
    /// # Panics
    ///
    /// Without one.
    #[doc(hidden)]
    fn abort<const CODE: u8>(self) -> !;

    /// Loads inside of a transaction.
    ///
    /// # Safety
    ///
    /// 1. The atomic lives until the transaction ends.
    #[doc(hidden)]
    unsafe fn load<A: TxAtomic>(self, atomic: &A) -> A::Value;

    /// Stores inside of a transaction.
    ///
    /// # Safety
    ///
    /// 1. The atomic lives until the transaction ends.
    #[doc(hidden)]
    unsafe fn store<A: TxAtomic>(self, atomic: &A, value: A::Value);

    /// Called by a thread that has taken a lock, before its section: no transaction commits from
    /// now on that has not seen the lock.
    #[doc(hidden)]
    fn after_lock(self);
}

/// The accesses of a section that may read and write, in a transaction or under the lock.
///
/// A section reads and writes shared atomics by this. In a transaction with
/// [`Rtm`](super::Rtm), and under the lock, an access is a plain load or store with Acquire and
/// Release, for readers beside the lock.
pub struct Tx<'t, B: Transaction> {
    /// None under the lock.
    backend: Option<B>,
    /// Atomics live as long as the data, so that a transaction can write them back at commit.
    data: PhantomData<fn(&'t ()) -> &'t ()>,
    thread: PhantomData<*const ()>,
}

/// The accesses of a section that only reads.
pub struct ReadTx<'t, B: Transaction>(Tx<'t, B>);

impl<'t, B: Transaction> Tx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(backend: Option<B>) -> Self {
        Self {
            backend,
            data: PhantomData,
            thread: PhantomData,
        }
    }

    /// Accesses that are in no transaction, for data that no other thread reaches yet, such as what
    /// a section prepares under the lock.
    #[inline]
    #[must_use]
    pub fn direct() -> Self {
        Self::new(None)
    }

    /// Whether the section runs as a transaction, and not under the lock.
    #[inline]
    #[must_use]
    pub fn is_transaction(&self) -> bool {
        self.backend.is_some()
    }

    /// Loads a value. Acquire: pairs with the Release in [`store`](Self::store), for values that
    /// are published to readers without a lock.
    #[inline(always)]
    pub fn load<A: TxAtomic>(&self, atomic: &'t A) -> A::Value {
        match self.backend {
            // SAFETY: it lives as long as the data, which is borrowed while the section runs (1).
            Some(backend) => unsafe { backend.load(atomic) },
            None => atomic.get(Acquire), // pairs with the Release in `store`
        }
    }

    /// Stores a value. Release: pairs with the Acquire in [`load`](Self::load).
    #[inline(always)]
    pub fn store<A: TxAtomic>(&self, atomic: &'t A, value: A::Value) {
        match self.backend {
            // SAFETY: it lives as long as the data, which is borrowed while the section runs (1).
            Some(backend) => unsafe { backend.store(atomic, value) },
            None => atomic.set(value, Release), // pairs with the Acquire in `load`
        }
    }

    /// Aborts a transaction with an explicit code below 128; does nothing under the lock, where the
    /// section must go on. The section then runs under the lock.
    ///
    /// Use it before something that aborts a transaction anyway, such as a system call.
    #[inline]
    pub fn leave_transaction<const CODE: u8>(&self) {
        const { assert!(CODE < 128, "higher codes are used by this crate") };
        self.abort_if_transaction::<CODE>();
    }

    #[inline(always)]
    pub(crate) fn abort_if_transaction<const CODE: u8>(&self) {
        if let Some(backend) = self.backend {
            backend.abort::<CODE>();
        }
    }
}

impl<'t, B: Transaction> ReadTx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(backend: Option<B>) -> Self {
        Self(Tx::new(backend))
    }

    /// As [`Tx::is_transaction`].
    #[inline]
    #[must_use]
    pub fn is_transaction(&self) -> bool {
        self.0.is_transaction()
    }

    /// As [`Tx::load`].
    #[inline(always)]
    pub fn load<A: TxAtomic>(&self, atomic: &'t A) -> A::Value {
        self.0.load(atomic)
    }
}
