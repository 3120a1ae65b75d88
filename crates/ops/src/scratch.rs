//! Memory for the length of a few launches.

use crate::{ElementType, OpError, Queue, View};

/// Runs `work` with a contiguous view in memory of its own, given back behind the launches.
pub(crate) fn scratch(
    queue: &mut dyn Queue,
    dtype: ElementType,
    sizes: &[u64],
    work: impl FnOnce(&mut dyn Queue, &View) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let bytes = sizes.iter().product::<u64>() * dtype.size();
    let address = queue.alloc(bytes.max(4))?;
    let done = View::contiguous(address, dtype, sizes).and_then(|view| work(queue, &view));
    queue.retire(address);
    done
}
