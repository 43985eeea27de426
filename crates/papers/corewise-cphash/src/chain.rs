//! The chain of a bucket: elements linked by `Header::next`.

use crate::element::{Element, Header};

/// The first element of a chain that has the ID and passes the test.
///
/// # Safety
///
/// 1. The caller owns the bucket, and all elements of the chain are allocated.
#[inline(always)]
pub(crate) unsafe fn find(
    head: *mut Header,
    id: u64,
    test: impl Fn(Element) -> bool,
) -> Option<Element> {
    let mut next = head;
    while let Some(element) = Element::from_ptr(next) {
        // No reference to the header lives during the test, which may change flags.
        let header = element.as_ptr();
        // SAFETY: the caller owns the headers of the chain (1).
        if unsafe { (*header).id } == id && test(element) {
            return Some(element);
        }
        // SAFETY: the header is still the caller's (1); the test frees no element.
        next = unsafe { (*header).next };
    }
    None
}

/// Adds an element at the beginning of a chain.
///
/// # Safety
///
/// 1. The caller owns the bucket and the element's header.
#[inline(always)]
pub(crate) unsafe fn push(head: &mut *mut Header, element: Element) {
    // SAFETY: the caller owns the header (1).
    unsafe { (*element.as_ptr()).next = *head };
    *head = element.as_ptr();
}

/// Takes an element out of a chain.
///
/// # Safety
///
/// 1. The caller owns the bucket, and all elements of the chain are allocated.
/// 2. `element` is in the chain.
#[inline(always)]
pub(crate) unsafe fn unlink(head: &mut *mut Header, element: Element) {
    let mut link: *mut *mut Header = head;
    // SAFETY: the caller owns the headers of the chain (1), and the walk ends at the element (2).
    unsafe {
        while *link != element.as_ptr() {
            link = &raw mut (**link).next;
        }
        *link = (*element.as_ptr()).next;
    }
}

/// A random element of a chain among those without references.
///
/// # Safety
///
/// 1. The caller owns the bucket, and all elements of the chain are allocated.
pub(crate) unsafe fn choose_unused(head: *mut Header, random: &mut Random) -> Option<Element> {
    let mut next = head;
    let (mut chosen, mut seen) = (None, 0);
    while let Some(element) = Element::from_ptr(next) {
        // SAFETY: the caller owns the headers of the chain (1).
        let header = unsafe { &*element.as_ptr() };
        next = header.next;
        if header.refs == 0 {
            seen += 1;
            // Each of n elements remains with probability 1/n.
            if random.next().is_multiple_of(seen) {
                chosen = Some(element);
            }
        }
    }
    chosen
}

/// xorshift64*: for the choice of victims, where nothing depends on its quality.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// 32 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}
