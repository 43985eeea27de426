//! Receives a large value in place: directly into the memory of its item.
//!
//! ```text
//!  set k 0 0 1000000\r\n │ value …………………………………………… │ \r\n │ get k\r\n
//!  line: a copy          │ reservation, in the engine │ end │ the loop's arena
//! ```
//!
//! A connection is in this state from the turn in which it finds the command line of such a store
//! until the value and the line break behind it have arrived. The store is then executed before any
//! later request. (In the protocol of \[CPHASH\]: a header, and no line break.)
//!
//! The engine owns the value's memory and bounds it: see [`corewise_engine::reservation`]. The
//! connection itself holds only the command line.

use crate::codec::{Codec, Parse};
use corewise_engine::{Reservation, Session};
use corewise_wire::Announced;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::transport::{Received, Transport};
use std::io;

/// Maximum bytes of a value that one turn reads.
const SLICE: usize = 512 << 10;

/// A store whose value is being received; see the [module](self).
pub(crate) struct Receiving {
    /// The store's command line or header.
    pub(crate) line: Vec<u8>,
    pub(crate) reservation: Reservation,
    /// The bytes behind the value, which should be a line break, as far as they have arrived.
    end: [u8; 2],
    ended: usize,
    /// How many bytes belong to the store behind its value.
    end_len: usize,
}

impl Receiving {
    /// Begins to receive the value of the store at the start of `input`, if there is one whose
    /// value the engine wants in place. Takes the part of the value that is in `input`, all of
    /// which belongs to the store.
    pub(crate) fn begin<S: Session>(
        session: &mut S,
        codec: &Codec,
        input: &[u8],
        parse: &Parse<'_>,
    ) -> Option<Box<Self>> {
        let announced = codec.announced(input, parse)?;
        let Announced {
            line_len,
            value_len,
            end_len,
            key,
            client_flags,
        } = announced;
        let (line, data) = input.split_at(line_len);
        let reservation = session.reserve(parse.now, key, value_len, client_flags, data.len())?;
        let mut receiving = Box::new(Self {
            line: line.to_vec(),
            reservation,
            end: [0; 2],
            ended: 0,
            end_len: end_len.min(2),
        });
        let taken = receiving.take(data);
        debug_assert_eq!(taken, data.len(), "the request is not whole");
        Some(receiving)
    }

    /// Takes the bytes of the value and its line break from the front of `data`. Returns how many.
    fn take(&mut self, data: &[u8]) -> usize {
        let mut taken = self.reservation.extend(data);
        while self.reservation.is_full() && self.ended < self.end_len && taken < data.len() {
            self.end[self.ended] = data[taken];
            self.ended += 1;
            taken += 1;
        }
        taken
    }

    /// The bytes behind the value, once everything has arrived.
    pub(crate) fn end(&self) -> Option<[u8; 2]> {
        let is_whole = self.reservation.is_full() && self.ended == self.end_len;
        is_whole.then_some(self.end)
    }

    /// Receives part of the value, and what follows it into `behind`. Returns what was received,
    /// and which part of `behind` does not belong to the store.
    pub(crate) fn receive(
        &mut self,
        transport: &mut Transport,
        behind: &mut [u8],
    ) -> io::Result<(Received, Range<usize>)> {
        let spare = self.reservation.spare();
        let count = spare.len().min(SLICE);
        let is_last = count == spare.len();
        let behind = if is_last { behind } else { &mut [] };
        // Initialised memory may be passed as uninitialised: nothing but bytes is written to it.
        let received = transport.receive([&mut spare[..count], as_uninit(behind)])?;
        let of_value = received.bytes.min(count);
        // SAFETY: the transport has initialised these bytes of the value.
        unsafe { self.reservation.advance(of_value) };
        let came = received.bytes - of_value;
        let taken = self.take(&behind[..came]);
        Ok((received, taken..came))
    }
}

/// Views bytes as memory to be written.
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let len = bytes.len();
    // SAFETY: the same memory. All users in this crate write bytes to it, and nothing else.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
}
