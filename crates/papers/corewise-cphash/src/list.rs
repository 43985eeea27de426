//! A doubly linked list through the headers of elements: the LRU list, and the detached elements.

use std::ptr;

use crate::element::{Element, Header};

pub(crate) struct List {
    newest: *mut Header,
    oldest: *mut Header,
}

/// # Safety of the methods
///
/// 1. The caller owns the partition, and all elements of the list are allocated.
/// 2. `element` is in the list, or, for `push`, in no list.
impl List {
    pub(crate) fn new() -> Self {
        Self {
            newest: ptr::null_mut(),
            oldest: ptr::null_mut(),
        }
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Option<Element> {
        Element::from_ptr(self.oldest)
    }

    /// # Safety
    ///
    /// 1 and 2 of the type's methods.
    #[inline]
    pub(crate) unsafe fn push(&mut self, element: Element) {
        let added = element.as_ptr();
        // SAFETY: the caller owns the headers of all elements in the list and of the new one.
        unsafe {
            (*added).newer = ptr::null_mut();
            (*added).older = self.newest;
            match self.newest.is_null() {
                true => self.oldest = added,
                false => (*self.newest).newer = added,
            }
        }
        self.newest = added;
    }

    /// # Safety
    ///
    /// 1 and 2 of the type's methods.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, element: Element) {
        // SAFETY: the caller owns the headers of all elements in the list.
        unsafe {
            let Header { newer, older, .. } = *element.as_ptr();
            match newer.is_null() {
                true => self.newest = older,
                false => (*newer).older = older,
            }
            match older.is_null() {
                true => self.oldest = newer,
                false => (*older).newer = newer,
            }
        }
    }

    /// # Safety
    ///
    /// 1 and 2 of the type's methods.
    #[inline]
    pub(crate) unsafe fn make_newest(&mut self, element: Element) {
        if self.newest != element.as_ptr() {
            // SAFETY: the element is in the list, and then in none.
            unsafe {
                self.remove(element);
                self.push(element);
            }
        }
    }
}
