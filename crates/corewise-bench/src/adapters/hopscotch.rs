//! Hopscotch hashing of `corewise-maps`: entries in place, near their homes.

use corewise_maps::hopscotch::HopscotchTable;
use corewise_maps::relativistic::DefaultHasher;

use crate::adapters::in_place::InPlace;
use crate::adapters::{rust, versions};
use crate::hash::Common;
use crate::subject::Entry;

type Hopscotch<S> = InPlace<HopscotchTable<u64, u64>, S>;

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "hopscotch",
        versions::OURS,
        "hopscotch hashing of corewise-maps (DISC 2008), which grows",
    );
    card.reclamation = "entries in place; bucket arrays by RCU with membarrier".into();
    card.guarantees =
        "lookups write nothing and wait for nobody, also beside displacements and while it is \
                       resized; updates lock a home, those without effect do not"
            .into();
    card.settings =
        "built with_capacity for the announced entries: at most 90 % full. The paper's \
                     has a fixed size, and a lock for each thread's segment of the table"
            .into();
    card.adapter = "one handle per operation, as pin() makes".into();
    Entry::new(card)
        .u64::<Hopscotch<Common>>()
        .u64_resize::<Hopscotch<Common>>()
        .u64_native::<Hopscotch<DefaultHasher>>()
}
