//! Things by handle. A handle is used again only after all others were.

use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Handles<T> {
    last: u32,
    all: BTreeMap<u32, Arc<T>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { last: 0, all: BTreeMap::new() }
    }
}

impl<T> Handles<T> {
    /// Its handle, which is not 0.
    pub fn insert(&mut self, thing: T) -> u32 {
        self.insert_shared(Arc::new(thing))
    }

    /// The same for what others have too.
    pub fn insert_shared(&mut self, thing: Arc<T>) -> u32 {
        let last = self.last;
        let free = |new: &u32| !self.all.contains_key(new);
        self.last = (1..=u32::MAX).map(|i| last.wrapping_add(i).max(1)).find(free).unwrap_or(1);
        self.all.insert(self.last, thing);
        self.last
    }

    /// By its handle.
    pub fn get(&self, handle: u32) -> Option<&Arc<T>> {
        self.all.get(&handle)
    }

    /// The handle of a thing.
    pub fn find(&self, thing: &Arc<T>) -> Option<u32> {
        self.all.iter().find(|(_, there)| Arc::ptr_eq(there, thing)).map(|(handle, _)| *handle)
    }

    /// Gives a handle back.
    pub fn remove(&mut self, handle: u32) -> Option<Arc<T>> {
        self.all.remove(&handle)
    }

    /// All that there are.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Arc<T>> {
        self.all.values()
    }

    /// Their handles.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn handles(&self) -> Vec<u32> {
        self.all.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_again_last() {
        let mut handles = Handles::default();
        assert_eq!([handles.insert('a'), handles.insert('b')], [1, 2]);
        assert_eq!(handles.remove(1).as_deref(), Some(&'a'));
        assert_eq!(handles.insert('c'), 3);
        handles.last = u32::MAX;
        assert_eq!((handles.insert('d'), handles.insert('e')), (1, 4));
        assert!(handles.get(0).is_none() && handles.remove(7).is_none());
        assert_eq!(handles.values().len(), 4);
    }
}
