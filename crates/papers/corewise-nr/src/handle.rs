//! Explicit registration.

use std::fmt;

use crate::registration::Claim;
use crate::replicated::{Garbage, unwrap};
use crate::{NodeReplicated, ReplicaId, Sequential};

/// A registration with a replica, made by [`NodeReplicated::handle`].
///
/// Its operations need no look-up of the calling thread's registration, and use the replica that
/// was asked for. If that leaves, the handle moves to another one.
///
/// A handle may be sent to another thread, but not shared: it has a slot to itself. Leaking it
/// leaks the slot.
pub struct Handle<'a, D: Sequential> {
    structure: &'a NodeReplicated<D>,
    claim: Claim,
}

/// The replica has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReplica;

impl fmt::Display for NoReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the replica has left")
    }
}

impl std::error::Error for NoReplica {}

impl<D: Sequential> NodeReplicated<D> {
    /// Registers with a replica, or with the one that the calling thread would get.
    ///
    /// # Errors
    ///
    /// If the replica has left.
    ///
    /// ```
    /// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
    /// use corewise_nr::Builder;
    /// let queue = Builder::new().replicas(2).build(|_| SkipListQueue::new()).unwrap();
    /// let [one, other] = queue.replicas()[..] else { unreachable!() };
    /// let (one, other) = (queue.handle(Some(one))?, queue.handle(Some(other))?);
    /// one.write(Write::Insert(2));
    /// assert_eq!(other.read(&Read::Min), Response::Key(Some(2)));
    /// # Ok::<(), corewise_nr::NoReplica>(())
    /// ```
    pub fn handle(&self, replica: Option<ReplicaId>) -> Result<Handle<'_, D>, NoReplica> {
        if replica.is_some_and(|id| !self.is_live(id)) {
            return Err(NoReplica);
        }
        Ok(Handle {
            structure: self,
            claim: Claim::new(&self.registry, replica.map(ReplicaId::number)),
        })
    }
}

impl<D: Sequential> Handle<'_, D> {
    /// As [`NodeReplicated::read`].
    ///
    /// # Panics
    ///
    /// As there.
    #[inline]
    pub fn read(&self, operation: &D::Read) -> D::Response {
        self.read_with(|data| data.read(operation))
    }

    /// As [`NodeReplicated::read_with`].
    ///
    /// # Panics
    ///
    /// As there.
    #[inline]
    pub fn read_with<R>(&self, f: impl FnOnce(&D) -> R) -> R {
        self.structure.registry.enter(|| {
            loop {
                if let Some(reading) = self.structure.try_read(self.claim.place()) {
                    return reading.with(f);
                }
                self.claim.move_on();
            }
        })
    }

    /// As [`NodeReplicated::write`].
    ///
    /// # Panics
    ///
    /// As [`NodeReplicated::write`].
    #[inline]
    pub fn write(&self, operation: D::Write) -> D::Response {
        let mut operation = operation;
        loop {
            let mut garbage = Garbage::new();
            let result = self.structure.registry.enter(|| {
                let place = self.claim.place();
                let result = self.structure.try_write(place, operation, &mut garbage);
                result.inspect_err(|_| self.claim.move_on())
            });
            garbage.discard();
            match result {
                Ok(outcome) => return unwrap(outcome),
                Err(back) => operation = back,
            }
        }
    }

    /// As [`NodeReplicated::write_or_read`].
    ///
    /// # Panics
    ///
    /// As [`NodeReplicated::write`].
    #[inline]
    pub fn write_or_read(&self, operation: D::Write) -> D::Response {
        match self.read_with(|data| data.write_as_read(&operation)) {
            Some(response) => response,
            None => self.write(operation),
        }
    }

    /// The number of the replica that the handle uses now.
    pub fn replica(&self) -> usize {
        self.claim.place().replica()
    }
}
