//! Which handles and descriptors are alive.
//!
//! What C callers hold are numbers that look like addresses and are none, never given out twice: one that was destroyed,
//! or that another library made, is told from a living one, and its kind from another's. Where a MIOpen is
//! behind us they are the addresses of its objects instead (see [`crate::vendor::next`]).

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::Id;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Something that C callers create, use and destroy.
pub trait Object: Any + Send + Sync {
    /// What a message calls it.
    const KIND: &'static str;
}

struct Live {
    kind: &'static str,
    object: Arc<dyn Any + Send + Sync>,
}

static LIVE: LazyLock<RwLock<HashMap<Id, Live>>> = LazyLock::new(RwLock::default);

/// Not canonical on x86-64, nor user space anywhere: who dereferences one faults at once.
static NEXT: AtomicUsize = AtomicUsize::new(0x7733_3200_0000_0000);

/// Makes an object known.
pub fn insert<T: Object>(object: T) -> Id {
    insert_as(NEXT.fetch_add(16, Ordering::Relaxed), object)
}

/// Makes an object known under the address of the vendor's own, which it is our record of.
pub fn insert_as<T: Object>(id: Id, object: T) -> Id {
    let live = Live { kind: T::KIND, object: Arc::new(object) };
    LIVE.write().unwrap_or_else(PoisonError::into_inner).insert(id, live);
    id
}

/// True for an object of any kind that is ours and alive.
pub fn is_ours(id: Id) -> bool {
    LIVE.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
}

fn check<T: Object>(found: Option<&Live>, id: Id, name: &str) -> Outcome<Arc<T>> {
    if id == 0 {
        return Err(Failure::bad(format!("{name} is null")));
    }
    let Some(live) = found else {
        let text = format!("{name} is no {} of this library, or was destroyed", T::KIND);
        return Err(Failure::bad(text));
    };
    Arc::clone(&live.object)
        .downcast()
        .map_err(|_| Failure::bad(format!("{name} is a {}, where a {} is meant", live.kind, T::KIND)))
}

/// The object of that number; it lives as long as what is returned, though another thread destroy it.
///
/// # Errors
/// Bad parameter: null, foreign, destroyed, or of another kind.
pub fn get<T: Object>(id: Id, name: &str) -> Outcome<Arc<T>> {
    check(LIVE.read().unwrap_or_else(PoisonError::into_inner).get(&id), id, name)
}

/// Destroys it: the number means nothing from now on.
///
/// # Errors
/// As [`get`].
pub fn remove<T: Object>(id: Id, name: &str) -> Outcome<Arc<T>> {
    let mut live = LIVE.write().unwrap_or_else(PoisonError::into_inner);
    let object = check(live.get(&id), id, name)?;
    live.remove(&id);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apple;
    impl Object for Apple {
        const KIND: &'static str = "apple";
    }
    struct Pear;
    impl Object for Pear {
        const KIND: &'static str = "pear";
    }

    #[test]
    fn only_living_objects_of_the_right_kind_are_found() {
        let (apple, pear) = (insert(Apple), insert(Pear));
        assert!(get::<Apple>(apple, "a").is_ok() && is_ours(pear));
        let says = |outcome: Outcome<Arc<Apple>>| outcome.err().unwrap().message;
        assert_eq!(says(get(pear, "a")), "a is a pear, where a apple is meant");
        assert_eq!(says(get(0, "a")), "a is null");
        assert!(remove::<Pear>(apple, "p").is_err());
        let held = remove::<Apple>(apple, "a").ok();
        assert!(held.is_some() && says(remove(apple, "a")).contains("destroyed"));
        assert!(insert(Apple) != apple, "numbers do not come back");
    }
}
