//! Programs that must not compile; see the module of this name in `corewise-maps`.

use corewise_testkit::{invariant, refused};

invariant! {
    "use corewise_maps_lab::chained::*;";
    chained_keys: "ChainedMap<Wide, u64, InPlace>", "ChainedMap<Narrow, u64, InPlace>";
    chained_values: "ChainedMap<u64, Wide, InPlace>", "ChainedMap<u64, Narrow, InPlace>";
    chained_handle_keys: "ChainedRef<'m, Wide, u64, InPlace>", "ChainedRef<'m, Narrow, u64, InPlace>";
    chained_handle_values: "ChainedRef<'m, u64, Wide, InPlace>", "ChainedRef<'m, u64, Narrow, InPlace>";
}

invariant! {
    "use corewise_maps_lab::hopscotch::*;";
    hopscotch_keys: "HopscotchMap<Wide, u64>", "HopscotchMap<Narrow, u64>";
    hopscotch_values: "HopscotchMap<u64, Wide>", "HopscotchMap<u64, Narrow>";
}

invariant! {
    "use corewise_maps_lab::clht_lock_free::*;";
    lock_free_values: "LockFree<u64, &'static Wide>", "LockFree<u64, &'static Narrow>";
}

invariant! {
    "use corewise_maps_lab::rename::*;";
    rename_keys: "RenameMap<Wide, u64>", "RenameMap<Narrow, u64>";
    rename_values: "RenameMap<u64, Wide>", "RenameMap<u64, Narrow>";
    rename_handle: "RenameRef<'m, u64, Wide>", "RenameRef<'m, u64, Narrow>";
}
