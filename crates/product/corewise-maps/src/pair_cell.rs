//! A `Copy` pair that may be read while it is being written.
//!
//! A reader without a lock may run concurrently with a writer. Plain loads and stores would then be
//! a data race, and a mixture of two pairs may not be a valid value of its type. So a pair is
//! stored as one to four words, which are read and written one by one, through atomics. The result
//! of a read is a [`Torn`] pair, merely bytes, until the reader knows from another source (a
//! version, a removal count) that no writer was active.
//!
//! A word is stored as an untyped pointer, so that pointers keep their provenance. Padding bytes of
//! a pair are undefined, which atomics must not be; [`freeze`] gives them some value when they are
//! written.
//!
//! One case is not covered: a pointer that lies across two words, which takes a packed structure.
//! Its bytes come back, and on every machine it is that pointer, but formally its provenance is
//! lost.

use std::mem::MaybeUninit;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, Ordering};

use crate::word::Raw;

/// The ordering of a load before an Acquire fence. ThreadSanitizer does not model fences, so under
/// it the load itself is Acquire.
pub const FENCED_LOAD: Ordering = if cfg!(corewise_tsan) {
    Acquire
} else {
    // Relaxed: the fence orders it.
    Relaxed
};

/// The ordering of a store that a Release fence may precede: Release under ThreadSanitizer, which
/// does not model fences, otherwise `order`.
const fn fenced_store(order: Ordering) -> Ordering {
    if cfg!(corewise_tsan) { Release } else { order }
}

/// Number of words in the largest pair.
const MOST_WORDS: usize = 4;

/// Its size is a multiple of a word.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Pair<K, V> {
    key: K,
    value: V,
}

/// The bytes of a pair, as a pair or as words.
#[derive(Clone, Copy)]
#[repr(C)]
union Bytes<K: Copy, V: Copy> {
    pair: Pair<K, V>,
    words: [MaybeUninit<Raw>; MOST_WORDS],
}

/// Storage for a pair. All bytes zero are a valid state, which represents no particular pair.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
#[repr(transparent)]
pub struct PairCell<K, V>(std::cell::UnsafeCell<MaybeUninit<Pair<K, V>>>);

/// The atomics of the model checkers are not plain memory.
#[cfg(any(corewise_loom, corewise_shuttle))]
pub struct PairCell<K, V>(
    [AtomicPtr<()>; MOST_WORDS],
    std::marker::PhantomData<Pair<K, V>>,
);

// SAFETY: threads get copies of what others have stored, and go through atomics.
unsafe impl<K: Send, V: Send> Sync for PairCell<K, V> {}
// SAFETY: it contains what was stored.
unsafe impl<K: Send, V: Send> Send for PairCell<K, V> {}

impl<K: Copy, V: Copy> PairCell<K, V> {
    /// Number of words of a pair. Larger pairs do not compile.
    pub const WORDS: usize = {
        let size = size_of::<Pair<K, V>>();
        assert!(
            size <= MOST_WORDS * size_of::<Raw>(),
            "a key and a value of more than 32 bytes"
        );
        size / size_of::<Raw>()
    };

    /// Whether a value can be replaced while readers are active: it lies in one word, so readers
    /// see the old or the new value.
    pub const VALUE_IS_IN_ONE_WORD: bool =
        size_of::<V>() == 0 || Self::VALUE_AT / 8 == (Self::VALUE_AT + size_of::<V>() - 1) / 8;

    /// Offset of the value in bytes.
    const VALUE_AT: usize = std::mem::offset_of!(Pair<K, V>, value);

    /// Creates a cell with no particular pair.
    pub fn empty() -> Self {
        #[cfg(not(any(corewise_loom, corewise_shuttle)))]
        return Self(std::cell::UnsafeCell::new(MaybeUninit::zeroed()));
        #[cfg(any(corewise_loom, corewise_shuttle))]
        return Self(
            std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            std::marker::PhantomData,
        );
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicPtr<()>] {
        #[cfg(not(any(corewise_loom, corewise_shuttle)))]
        // SAFETY: `WORDS` words, aligned, initialized by `empty` or as zeroed memory; every access
        // to them is through this function.
        return unsafe { std::slice::from_raw_parts(self.0.get().cast(), Self::WORDS) };
        #[cfg(any(corewise_loom, corewise_shuttle))]
        return &self.0[..Self::WORDS];
    }

    /// Reads the cell: a pair, or bytes of several pairs if a writer is active. (Relaxed: the
    /// reader's validation orders these loads.)
    #[inline(always)]
    pub fn load(&self) -> Torn<K, V> {
        let mut words = [MaybeUninit::uninit(); MOST_WORDS];
        for (word, there) in words.iter_mut().zip(self.words()) {
            word.write(there.load(FENCED_LOAD));
        }
        Torn(Bytes { words })
    }

    /// Writes a pair, each word with this ordering. No other thread may be writing, or readers
    /// would take a mixture for a pair.
    #[inline(always)]
    pub fn store(&self, key: K, value: V, order: Ordering) {
        let bytes = Bytes {
            pair: Pair { key, value },
        };
        for (index, word) in self.words().iter().enumerate() {
            // SAFETY: any bytes are valid as words that may be undefined.
            let bytes = unsafe { bytes.words[index] };
            word.store(freeze(bytes), fenced_store(order));
        }
    }

    /// Writes the word of a value that [lies in one](Self::VALUE_IS_IN_ONE_WORD). The key must be
    /// the present one; no other writer may be active, but readers may be.
    pub fn store_value(&self, key: K, value: V, order: Ordering) {
        assert!(Self::VALUE_IS_IN_ONE_WORD);
        if size_of::<V>() == 0 {
            return;
        }
        let bytes = Bytes {
            pair: Pair { key, value },
        };
        let index = Self::VALUE_AT / 8;
        // SAFETY: any bytes are valid as words that may be undefined.
        let word = freeze(unsafe { bytes.words[index] });
        self.words()[index].store(word, fenced_store(order));
    }
}

/// The result of reading a [`PairCell`]: bytes, perhaps of different pairs.
#[derive(Clone, Copy)]
pub struct Torn<K: Copy, V: Copy>(Bytes<K, V>);

impl<K: Copy, V: Copy> Torn<K, V> {
    /// The pair.
    ///
    /// # Safety
    ///
    /// 1. A pair was stored in the cell before it was loaded, and no store of another pair was
    ///    under way or came between the loads.
    #[inline(always)]
    pub unsafe fn assume_whole(self) -> (K, V) {
        // SAFETY: by 1 these are the bytes of one pair, whose padding does not matter.
        let Pair { key, value } = unsafe { self.0.pair };
        (key, value)
    }

    /// Whether the bytes are equal, padding included.
    pub fn is_same(&self, other: &Self) -> bool {
        // SAFETY: `load` has written these words, in both.
        let differ = |index: usize| unsafe {
            self.0.words[index].assume_init() != other.0.words[index].assume_init()
        };
        !(0..PairCell::<K, V>::WORDS).any(differ)
    }
}

/// Returns the same bytes; from here on, undefined bytes have some fixed value.
#[inline(always)]
fn freeze(word: MaybeUninit<Raw>) -> Raw {
    #[cfg(not(miri))]
    {
        let mut word = word;
        // SAFETY: the assembly does nothing, but the compiler must assume that it may have written
        // the register, whose contents are then defined.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) word, options(nomem, nostack, pure, preserves_flags));
            word.assume_init()
        }
    }
    #[cfg(miri)]
    // SAFETY: Miri reports it if the word is undefined; the tests under Miri use no types with
    // padding.
    unsafe {
        word.assume_init()
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn comes_back<K: Copy + PartialEq + Debug, V: Copy + PartialEq + Debug>(
        words: usize,
        pairs: [(K, V); 2],
    ) {
        assert_eq!(PairCell::<K, V>::WORDS, words);
        let cell = PairCell::<K, V>::empty();
        for (key, value) in pairs {
            cell.store(key, value, Relaxed);
            // SAFETY: stored, and no other thread has the cell.
            assert_eq!(unsafe { cell.load().assume_whole() }, (key, value));
        }
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Shape {
        Dot,
        Line(u16),
    }

    #[test]
    fn pairs_of_any_shape_come_back() {
        comes_back(0, [((), ()); 2]);
        comes_back(1, [(7u8, ()), (0, ())]);
        comes_back(1, [([1u8, 2, 3], 4u16), ([5; 3], 6)]);
        comes_back(2, [(1u64, 2u64), (u64::MAX, 0)]);
        comes_back(2, [(true, 1u64), (false, 2)]);
        comes_back(4, [(1u128, 2u64), (u128::MAX, 3)]);
        comes_back(4, [('a', [1u64, 2, 3]), ('z', [4; 3])]);
        comes_back(1, [(Shape::Dot, 1u8), (Shape::Line(9), 2)]);
        comes_back(3, [("key", Some('v')), ("", None)]);
    }

    fn value_is_replaced<K: Copy + PartialEq + Debug, V: Copy + PartialEq + Debug>(
        key: K,
        [old, new]: [V; 2],
    ) {
        const { assert!(PairCell::<K, V>::VALUE_IS_IN_ONE_WORD) };
        let cell = PairCell::<K, V>::empty();
        cell.store(key, old, Relaxed);
        let before = cell.load();
        assert!(before.is_same(&cell.load()));
        cell.store_value(key, new, Relaxed);
        assert_eq!(before.is_same(&cell.load()), old == new);
        // SAFETY: stored, and no other thread has the cell.
        assert_eq!(unsafe { cell.load().assume_whole() }, (key, new));
    }

    #[test]
    fn a_value_in_one_word_is_replaced_alone() {
        value_is_replaced(7u8, [(); 2]);
        value_is_replaced((), [(); 2]);
        value_is_replaced(7u64, [(); 2]);
        value_is_replaced([1u8, 2, 3], [4u16, 5]);
        value_is_replaced(7u64, ['a', 'b']);
        value_is_replaced(7u128, [1u64, 2]);
        value_is_replaced('k', ["", "corewise"].map(str::len));
        const { assert!(!PairCell::<u64, u128>::VALUE_IS_IN_ONE_WORD) };
        const { assert!(!PairCell::<u32, [u8; 5]>::VALUE_IS_IN_ONE_WORD) };
    }

    #[test]
    fn a_reference_can_be_used_when_it_is_back() {
        let town = String::from("Utrecht");
        let cell = PairCell::<u16, &String>::empty();
        cell.store(1, &town, Relaxed);
        // SAFETY: stored, and no other thread has the cell.
        assert_eq!(unsafe { cell.load().assume_whole() }.1, "Utrecht");
    }
}
