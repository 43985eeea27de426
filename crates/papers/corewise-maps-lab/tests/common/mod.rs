//! What the tests of elided structures share.

use corewise_locks::elide::{AttemptOutcome, Cause};
use corewise_testkit::random::Random;

/// The outcomes of some transactions, which abort for one cause: `cause` or a common one. An abort
/// comes at the beginning, at one of the first `accesses` accesses, or at the commit.
pub(crate) fn script(random: &mut Random, cause: Cause, accesses: u64) -> Vec<AttemptOutcome> {
    let causes = [Cause::Conflict, Cause::Capacity, Cause::Unspecified, cause];
    let cause = random.choose(&causes);
    let aborts = random.below(4);
    (0..aborts)
        .map(|_| match random.below(3) {
            0 => AttemptOutcome::AbortAtBegin(cause),
            1 => AttemptOutcome::AbortAtAccess(random.below(accesses) as u32, cause),
            _ => AttemptOutcome::AbortAtCommit(cause),
        })
        .collect()
}
