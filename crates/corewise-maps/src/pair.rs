//! A `Copy` pair that may be read while it is written.
//!
//! A reader that does not lock may meet a writer. Plain loads and stores would be a data race then, and a mixture of
//! two pairs may be no value of its type at all. So a pair is kept as one to four words; reading and writing go word
//! by word, through atomics; and what was read is a [`Torn`] pair, some bytes, until its reader knows from
//! elsewhere (a version, a removal count) that no writer was there.
//!
//! A word is kept as a pointer without a type, so that pointers keep their provenance. Bytes of a pair that mean
//! nothing (padding) are undefined, which atomics must not be; [`freeze`] gives them some value when they are written.
//!
//! The limit of this is a pointer that lies across two words, which takes a packed structure: its bytes come back,
//! and on every machine it is that pointer, but by the letter of the language its provenance does not.

use std::mem::MaybeUninit;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, Ordering};

use crate::word::Raw;

/// The ordering of a load that a fence (Acquire) comes after. ThreadSanitizer does not know fences.
pub(crate) const FENCED_LOAD: Ordering = if cfg!(corewise_tsan) {
    Acquire
} else {
    Relaxed
};

/// The ordering of a store that a fence (Release) may have come before, if so.
const fn fenced_store(order: Ordering) -> Ordering {
    if cfg!(corewise_tsan) { Release } else { order }
}

/// Words in the largest pair.
const MOST_WORDS: usize = 4;

/// Its size is a multiple of a word.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Pair<K, V> {
    key: K,
    value: V,
}

/// A pair's bytes by both names.
#[derive(Clone, Copy)]
#[repr(C)]
union Bytes<K: Copy, V: Copy> {
    pair: Pair<K, V>,
    words: [MaybeUninit<Raw>; MOST_WORDS],
}

/// Room for a pair. All bytes zero are a valid state, which stands for no pair in particular.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
#[repr(transparent)]
pub(crate) struct PairCell<K, V>(std::cell::UnsafeCell<MaybeUninit<Pair<K, V>>>);

/// The checkers' atomics are no plain memory.
#[cfg(any(corewise_loom, corewise_shuttle))]
pub(crate) struct PairCell<K, V>(
    [AtomicPtr<()>; MOST_WORDS],
    std::marker::PhantomData<Pair<K, V>>,
);

// SAFETY: threads get copies of what others have put in, and go through atomics.
unsafe impl<K: Send, V: Send> Sync for PairCell<K, V> {}
// SAFETY: it has what was put in.
unsafe impl<K: Send, V: Send> Send for PairCell<K, V> {}

impl<K: Copy, V: Copy> PairCell<K, V> {
    /// How many words a pair has. Larger pairs do not compile.
    pub(crate) const WORDS: usize = {
        let size = size_of::<Pair<K, V>>();
        assert!(
            size <= MOST_WORDS * size_of::<Raw>(),
            "a key and a value of more than 32 bytes"
        );
        size / size_of::<Raw>()
    };

    /// Whether a value may be replaced while readers are there: it lies in one word, and so is the old or the new one
    /// to them.
    pub(crate) const VALUE_IS_IN_ONE_WORD: bool =
        size_of::<V>() == 0 || Self::VALUE_AT / 8 == (Self::VALUE_AT + size_of::<V>() - 1) / 8;

    /// Bytes before the value.
    const VALUE_AT: usize = std::mem::offset_of!(Pair<K, V>, value);

    /// A cell with no pair in particular.
    pub(crate) fn empty() -> Self {
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
        // SAFETY: so many words, aligned, which `empty` or whoever made zeroed memory a cell has initialized; and
        // every access to them is through this.
        return unsafe { std::slice::from_raw_parts(self.0.get().cast(), Self::WORDS) };
        #[cfg(any(corewise_loom, corewise_shuttle))]
        return &self.0[..Self::WORDS];
    }

    /// What is there: a pair, or bytes of several if somebody writes. (Relaxed: how the reader finds out orders
    /// these loads.)
    #[inline(always)]
    pub(crate) fn load(&self) -> Torn<K, V> {
        let mut words = [MaybeUninit::uninit(); MOST_WORDS];
        for (word, there) in words.iter_mut().zip(self.words()) {
            word.write(there.load(FENCED_LOAD));
        }
        Torn(Bytes { words })
    }

    /// Writes a pair, each word with this ordering. Nobody else may be writing, or readers will take a mixture for
    /// a pair.
    #[inline(always)]
    pub(crate) fn store(&self, key: K, value: V, order: Ordering) {
        let bytes = Bytes {
            pair: Pair { key, value },
        };
        for (index, word) in self.words().iter().enumerate() {
            // SAFETY: any bytes are words that may be undefined.
            let bytes = unsafe { bytes.words[index] };
            word.store(freeze(bytes), fenced_store(order));
        }
    }

    /// Writes the word of a value that [lies in one](Self::VALUE_IS_IN_ONE_WORD). The key is the one that is there; no
    /// other writer is, and readers may be.
    pub(crate) fn store_value(&self, key: K, value: V, order: Ordering) {
        assert!(Self::VALUE_IS_IN_ONE_WORD);
        if size_of::<V>() == 0 {
            return;
        }
        let bytes = Bytes {
            pair: Pair { key, value },
        };
        let index = Self::VALUE_AT / 8;
        // SAFETY: as in `store`.
        let word = freeze(unsafe { bytes.words[index] });
        self.words()[index].store(word, fenced_store(order));
    }
}

/// What was read from a [`PairCell`]: bytes, perhaps of different pairs.
#[derive(Clone, Copy)]
pub(crate) struct Torn<K: Copy, V: Copy>(Bytes<K, V>);

impl<K: Copy, V: Copy> Torn<K, V> {
    /// The pair.
    ///
    /// # Safety
    ///
    /// 1. A pair was stored in the cell before it was loaded, and no store of another one was under way or came
    ///    between the loads.
    #[inline(always)]
    pub(crate) unsafe fn assume_whole(self) -> (K, V) {
        // SAFETY: by 1 these are the bytes of one pair, whose padding does not matter.
        let Pair { key, value } = unsafe { self.0.pair };
        (key, value)
    }

    /// Whether these are the same bytes, those included that mean nothing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // SAFETY: `load` has written these words, in both.
        let differ = |index: usize| unsafe {
            self.0.words[index].assume_init() != other.0.words[index].assume_init()
        };
        !(0..PairCell::<K, V>::WORDS).any(differ)
    }
}

/// The same bytes, of which those that are undefined have some value from here on.
#[inline(always)]
fn freeze(word: MaybeUninit<Raw>) -> Raw {
    #[cfg(not(miri))]
    {
        let mut word = word;
        // SAFETY: it does nothing; but the compiler cannot know that it has not written the register, whose
        // contents are whatever they are.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) word, options(nomem, nostack, pure, preserves_flags));
            word.assume_init()
        }
    }
    #[cfg(miri)]
    // SAFETY: Miri says if not; it is not shown types with padding.
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
            // SAFETY: stored, and nobody else is here.
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
        // SAFETY: as above.
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
        // SAFETY: as above.
        assert_eq!(unsafe { cell.load().assume_whole() }.1, "Utrecht");
    }
}
