//! An array that grows and shrinks by pages, so that it never copies its elements.
//!
//! Only the first page, and the list of pages, grow by an eighth of their lengths.

use std::ops::{Index, IndexMut};

use super::mover::Mover;
use super::{Array, TINY, grow_by_an_eighth};
use crate::SetMemory;

/// Elements of a page.
const PAGE: usize = if TINY { 4 } else { 32 };

/// See the module. An index has 32 bits.
#[derive(Debug)]
pub(super) struct Pages<T> {
    /// All are full but the last, which is not empty.
    pages: Array<Array<T>>,
    len: usize,
    /// The capacities of all pages together.
    capacity: usize,
}

impl<T> Pages<T> {
    pub(super) fn new(memory: &SetMemory) -> Self {
        Self {
            pages: Array::new_in(memory.clone()),
            len: 0,
            capacity: 0,
        }
    }

    /// Where the pages take their memory from.
    pub(super) fn source(&self) -> &SetMemory {
        self.pages.allocator()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes requested from the allocator, without what the elements have requested.
    pub(super) fn memory(&self) -> usize {
        self.capacity * size_of::<T>() + self.pages.capacity() * size_of::<Array<T>>()
    }

    /// Adds an element at the end, and returns its index.
    pub(super) fn push(&mut self, element: T) -> u32 {
        if self.len.is_multiple_of(PAGE) {
            grow_by_an_eighth(&mut self.pages);
            let page = Array::new_in(self.source().clone());
            self.pages.push(page);
        }
        let page = self.pages.last_mut().expect("a page with room");
        if page.len() == page.capacity() {
            self.capacity -= page.capacity();
            page.reserve_exact((self.len / 8).clamp(1, PAGE - page.len()));
            self.capacity += page.capacity();
        }
        page.push(element);
        self.len += 1;
        (self.len - 1) as u32
    }

    /// Removes the last element.
    pub(super) fn pop(&mut self) -> Option<T> {
        let page = self.pages.last_mut()?;
        let element = page.pop();
        self.len -= 1;
        let few = page.capacity() / 2;
        if page.is_empty() {
            self.capacity -= page.capacity();
            self.pages.pop();
            if self.pages.len() <= self.pages.capacity() / 2 {
                self.pages.shrink_to_fit();
            }
        } else if self.len < few {
            self.capacity -= page.capacity();
            page.shrink_to_fit();
            self.capacity += page.capacity();
        }
        element
    }

    /// Frees the last page, if there is one.
    pub(super) fn drop_page(&mut self) -> bool {
        let Some(page) = self.pages.pop() else {
            return false;
        };
        self.len -= page.len();
        self.capacity -= page.capacity();
        true
    }

    /// Visits the arrays of pages, and then those that an element has.
    pub(super) fn move_arrays(
        &mut self,
        mover: &mut Mover<'_>,
        mut of_element: impl FnMut(&mut T, &mut Mover<'_>),
    ) {
        mover.visit(&mut self.pages);
        for page in &mut self.pages {
            mover.visit(page);
            for element in page {
                of_element(element, mover);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }

    /// Two elements with different indices.
    pub(super) fn pair(&mut self, left: u32, right: u32) -> (&mut T, &mut T) {
        let (left, right) = (left as usize, right as usize);
        let pages = [left / PAGE, right / PAGE];
        let places = [left % PAGE, right % PAGE];
        if pages[0] == pages[1] {
            let found = self.pages[pages[0]].get_disjoint_mut(places);
            let [left, right] = found.expect("two elements that exist");
            return (left, right);
        }
        let found = self.pages.get_disjoint_mut(pages);
        let [left, right] = found.expect("two pages that exist");
        (&mut left[places[0]], &mut right[places[1]])
    }
}

impl<T> Index<u32> for Pages<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        let index = index as usize;
        &self.pages[index / PAGE][index % PAGE]
    }
}

impl<T> IndexMut<u32> for Pages<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        let index = index as usize;
        &mut self.pages[index / PAGE][index % PAGE]
    }
}

/// The clone has no room for more elements.
impl<T: Clone> Clone for Pages<T> {
    fn clone(&self) -> Self {
        let pages = self.pages.clone();
        Self {
            capacity: pages.iter().map(Array::capacity).sum(),
            len: self.len,
            pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Pages, SetMemory};

    #[test]
    fn elements_come_and_go_at_the_end() {
        let mut pages = Pages::new(&SetMemory::default());
        assert_eq!(pages.memory(), 0);
        for number in 0..10 * PAGE as u32 + 1 {
            assert_eq!(pages.push(u64::from(number)), number);
            assert_eq!(pages.len(), number as usize + 1);
            pages[number] += 1;
        }
        let (left, right) = pages.pair(0, 3);
        std::mem::swap(left, right);
        let (left, right) = pages.pair(PAGE as u32, 1);
        std::mem::swap(left, right);
        assert_eq!((pages[0], pages[1], pages[3]), (4, PAGE as u64 + 1, 1));
        let clone = pages.clone();
        assert!(clone.iter().eq(pages.iter()) && clone.memory() <= pages.memory());
        let mut last = 10 * PAGE as u64 + 1;
        while last > PAGE as u64 + 1 {
            assert_eq!(pages.pop(), Some(last));
            let most = pages.len() + pages.len() / 8 + PAGE;
            assert!(pages.memory() <= most * 8 + 64 * (pages.len() / PAGE + 2));
            last -= 1;
        }
        while pages.pop().is_some() {}
        assert_eq!((pages.len(), pages.memory()), (0, 0));
    }
}
