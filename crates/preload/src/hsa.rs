//! HSA's calls that name a kind of memory.
//!
//! Below HIP these do what [`crate::hip`] was asked for. Called by a program itself, fine-grained pools and regions give
//! their agent's coarse-grained memory; those for kernel arguments stay. Queries tell the truth. Called by AMD's own
//! libraries for themselves, nothing changes.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::size_of;

use crate::policy::{self, CoarseMode};
use crate::real::{is_runtime, real};

/// Values of hsa_status_t.
const SUCCESS: c_int = 0;
const BREAK: c_int = 1;
const NOT_INITIALIZED: c_int = 0x100b;

/// Of hsa_amd_memory_pool_info_t and, the same numbers, hsa_region_info_t.
const INFO_SEGMENT: c_int = 0;
const INFO_GLOBAL_FLAGS: c_int = 1;
const SEGMENT_GLOBAL: u32 = 0;
const KERNARG: u32 = 1;
/// Fine-grained; of extended scope.
const FINE: u32 = 2 | 8;
const COARSE: u32 = 4;

/// hsa_amd_memory_pool_t and hsa_region_t: a number that ROCr uses for both.
type Pool = u64;
type Agent = u64;

/// Global flags of a pool; 0 of other segments, of what cannot be asked.
fn flags(pool: Pool) -> u32 {
    let ask = |info: c_int| {
        let mut value = u32::MAX;
        let at: *mut u32 = &raw mut value;
        let status = real!(
            HSA, hsa_amd_memory_pool_get_info(pool: Pool, info: c_int, at: *mut u32) -> c_int, NOT_INITIALIZED
        );
        (status == SUCCESS).then_some(value)
    };
    if ask(INFO_SEGMENT) == Some(SEGMENT_GLOBAL) { ask(INFO_GLOBAL_FLAGS).unwrap_or(0) } else { 0 }
}

/// An agent's pools, as far as they were seen. Shared with callbacks of HSA's, which might call them from anywhere.
struct Pools {
    wanted: Pool,
    has_wanted: Cell<bool>,
    coarse: Cell<Option<Pool>>,
}

unsafe extern "C-unwind" fn see_pool(pool: Pool, pools: *mut c_void) -> c_int {
    // SAFETY: `neighbour` handed it over, and it is only read through.
    let pools = unsafe { &*pools.cast::<Pools>() };
    if pool == pools.wanted {
        pools.has_wanted.set(true);
    }
    if pools.coarse.get().is_none() && flags(pool) & COARSE != 0 {
        pools.coarse.set(Some(pool));
    }
    SUCCESS
}

unsafe extern "C-unwind" fn see_agent(agent: Agent, pools: *mut c_void) -> c_int {
    // SAFETY: `neighbour` hands it over, and it is only read through.
    let all = unsafe { &*pools.cast::<Pools>() };
    all.coarse.set(None);
    let each: unsafe extern "C-unwind" fn(Pool, *mut c_void) -> c_int = see_pool;
    real!(
        HSA,
        hsa_amd_agent_iterate_memory_pools(
            agent: Agent,
            each: unsafe extern "C-unwind" fn(Pool, *mut c_void) -> c_int,
            pools: *mut c_void
        ) -> c_int,
        NOT_INITIALIZED
    );
    if all.has_wanted.get() { BREAK } else { SUCCESS }
}

/// The coarse-grained pool of the agent that this pool belongs to.
fn neighbour(pool: Pool) -> Option<Pool> {
    let found = Pools { wanted: pool, has_wanted: Cell::new(false), coarse: Cell::new(None) };
    let pools: *mut c_void = (&raw const found).cast_mut().cast();
    let each: unsafe extern "C-unwind" fn(Agent, *mut c_void) -> c_int = see_agent;
    real!(
        HSA,
        hsa_iterate_agents(each: unsafe extern "C-unwind" fn(Agent, *mut c_void) -> c_int, pools: *mut c_void) -> c_int,
        NOT_INITIALIZED
    );
    if found.has_wanted.get() { found.coarse.get() } else { None }
}

/// Whether memory asked for from `caller` is a program's: who asks, if HIP does so for it.
fn asked_by(caller: *const c_void) -> Option<&'static str> {
    if policy::mode() == CoarseMode::Leave {
        return None;
    }
    policy::call().or_else(|| (!is_runtime(caller)).then_some("the program"))
}

/// Of hsa_amd_memory_pool_flag_t, in newer ROCr: no coarse-grained memory is that.
const UNCACHED: u32 = 8;

/// Pool and flags to take instead of these, where code at `caller` asked for them.
fn instead(pool: Pool, flags: u32, bytes: usize, caller: *const c_void) -> (Pool, u32) {
    match coarse_for(pool, bytes, caller) {
        Some(coarse) => (coarse, flags & !UNCACHED),
        None => (pool, flags),
    }
}

fn coarse_for(pool: Pool, bytes: usize, caller: *const c_void) -> Option<Pool> {
    let who = asked_by(caller)?;
    let flags = flags(pool);
    // Where a runtime has one fine-grained pool for all, what HIP was asked for comes from that of the arguments too.
    if flags & FINE == 0 || flags & KERNARG != 0 && policy::call().is_none() {
        return None;
    }
    let coarse = neighbour(pool)?;
    policy::log(|| format!("{who}: {bytes} bytes, coarse-grained instead of fine-grained"));
    Some(coarse)
}

/// Defines a function that goes on to `$inner` with its caller's address in `$register`: the argument behind its last.
macro_rules! knows_caller {
    ($($name:ident => $inner:ident, $register:literal;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of HSA.")]
        ///
        /// # Safety
        /// As of HSA.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {}", sym $inner)
        }
    )*};
}

knows_caller! {
    hsa_amd_memory_pool_allocate => pool_allocate, "r8";
    hsa_memory_allocate => memory_allocate, "rcx";
    hsa_amd_vmem_handle_create => vmem_handle_create, "r9";
    hsa_amd_svm_attributes_set => svm_attributes_set, "r8";
}

unsafe extern "C-unwind" fn pool_allocate(
    pool: Pool,
    bytes: usize,
    flags: u32,
    at: *mut *mut c_void,
    caller: *const c_void,
) -> c_int {
    let (pool, flags) = instead(pool, flags, bytes, caller);
    real!(
        HSA,
        hsa_amd_memory_pool_allocate(pool: Pool, bytes: usize, flags: u32, at: *mut *mut c_void) -> c_int,
        NOT_INITIALIZED
    )
}

unsafe extern "C-unwind" fn memory_allocate(
    region: Pool,
    bytes: usize,
    at: *mut *mut c_void,
    caller: *const c_void,
) -> c_int {
    let region = coarse_for(region, bytes, caller).unwrap_or(region);
    real!(HSA, hsa_memory_allocate(region: Pool, bytes: usize, at: *mut *mut c_void) -> c_int, NOT_INITIALIZED)
}

unsafe extern "C-unwind" fn vmem_handle_create(
    pool: Pool,
    bytes: usize,
    kind: c_int,
    flags: u64,
    handle: *mut u64,
    caller: *const c_void,
) -> c_int {
    let pool = coarse_for(pool, bytes, caller).unwrap_or(pool);
    real!(
        HSA,
        hsa_amd_vmem_handle_create(pool: Pool, bytes: usize, kind: c_int, flags: u64, handle: *mut u64) -> c_int,
        NOT_INITIALIZED
    )
}

/// `hsa_amd_memory_lock_to_pool` of HSA: by it HIP registers a program's memory. Programs themselves have
/// `hsa_amd_memory_lock`, which is coarse-grained.
///
/// # Safety
/// As of HSA.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hsa_amd_memory_lock_to_pool(
    host: *mut c_void,
    bytes: usize,
    agents: *mut Agent,
    count: c_int,
    pool: Pool,
    flags: u32,
    at: *mut *mut c_void,
) -> c_int {
    let ours = policy::call().and_then(|_| coarse_for(pool, bytes, std::ptr::null()));
    let pool = ours.unwrap_or(pool);
    real!(
        HSA,
        hsa_amd_memory_lock_to_pool(
            host: *mut c_void,
            bytes: usize,
            agents: *mut Agent,
            count: c_int,
            pool: Pool,
            flags: u32,
            at: *mut *mut c_void
        ) -> c_int,
        NOT_INITIALIZED
    )
}

/// hsa_amd_svm_attribute_pair_t.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    name: u64,
    value: u64,
}

/// HSA_AMD_SVM_ATTRIB_GLOBAL_FLAG, and its value for coarse-grained.
const GRAIN: u64 = 0;
const GRAIN_COARSE: u64 = 1;
/// HSA_AMD_SVM_ATTRIB_AGENT_ACCESSIBLE and .._IN_PLACE.
const ACCESSIBLE: std::ops::RangeInclusive<u64> = 0x200..=0x201;

/// Longer lists make no sense: there are some ten attributes, three of them for each agent.
const MAX_ATTRIBUTES: usize = 4096;

/// With a coarse grain: where one is named, if `named` says so; and where the memory becomes a card's without one, as it
/// would be fine-grained then.
fn coarsened(mut list: Vec<Attribute>, named: bool) -> Vec<Attribute> {
    let has_grain = list.iter().any(|attribute| attribute.name == GRAIN);
    if named {
        for attribute in list.iter_mut().filter(|attribute| attribute.name == GRAIN) {
            attribute.value = GRAIN_COARSE;
        }
    }
    if !has_grain && list.iter().any(|attribute| ACCESSIBLE.contains(&attribute.name)) {
        list.push(Attribute { name: GRAIN, value: GRAIN_COARSE });
    }
    list
}

unsafe extern "C-unwind" fn svm_attributes_set(
    address: *mut c_void,
    bytes: usize,
    list: *mut Attribute,
    count: usize,
    caller: *const c_void,
) -> c_int {
    let mut ours = Vec::new();
    // What makes no sense is HSA's to refuse.
    if policy::mode() != CoarseMode::Leave && !list.is_null() && count <= MAX_ATTRIBUTES {
        // SAFETY: the caller promises that many, and HSA reads them too.
        let theirs: Vec<Attribute> = (0..count).map(|at| unsafe { list.add(at).read_unaligned() }).collect();
        // Shared virtual memory is always a program's, variables that are `__managed__` included.
        ours = coarsened(theirs, asked_by(caller).is_some());
        if ours.iter().any(|attribute| attribute.name == GRAIN && attribute.value == GRAIN_COARSE) {
            policy::log(|| format!("{bytes} bytes at {address:p}: shared virtual memory, coarse-grained"));
        }
    }
    let (list, count) = if ours.is_empty() { (list, count) } else { (ours.as_mut_ptr(), ours.len()) };
    real!(
        HSA,
        hsa_amd_svm_attributes_set(
            address: *mut c_void,
            bytes: usize,
            list: *mut Attribute,
            count: usize
        ) -> c_int,
        NOT_INITIALIZED
    )
}

/// hsa_amd_pointer_info_t, as of ROCm 5; later ones go on.
#[repr(C)]
struct PointerInfo {
    bytes: u32,
    kind: u32,
    card_base: *mut c_void,
    host_base: *mut c_void,
    allocated: usize,
    user: *mut c_void,
    owner: Agent,
    global_flags: u32,
}

/// Of hsa_amd_pointer_type_t.
const KIND_ALLOCATED: u32 = 1;
const KIND_LOCKED: u32 = 2;
/// HSA_AGENT_INFO_DEVICE, and its value for processors.
const AGENT_DEVICE: c_int = 17;
const DEVICE_CPU: u32 = 0;

/// Whether a kernel that runs would miss what the host writes there.
pub fn is_coarse_host_memory(address: *mut c_void) -> bool {
    let mut info = PointerInfo {
        bytes: size_of::<PointerInfo>() as u32,
        kind: 0,
        card_base: std::ptr::null_mut(),
        host_base: std::ptr::null_mut(),
        allocated: 0,
        user: std::ptr::null_mut(),
        owner: 0,
        global_flags: 0,
    };
    let (at, none) = (&raw mut info, std::ptr::null_mut::<c_void>());
    let status = real!(
        HSA,
        hsa_amd_pointer_info(
            address: *mut c_void,
            at: *mut PointerInfo,
            none: *mut c_void,
            none: *mut c_void,
            none: *mut c_void
        ) -> c_int,
        NOT_INITIALIZED
    );
    if status != SUCCESS || info.global_flags & COARSE == 0 {
        return false;
    }
    let on_processor = || {
        let (agent, mut device) = (info.owner, u32::MAX);
        let at: *mut u32 = &raw mut device;
        let status = real!(
            HSA, hsa_agent_get_info(agent: Agent, AGENT_DEVICE: c_int, at: *mut u32) -> c_int, NOT_INITIALIZED
        );
        status == SUCCESS && device == DEVICE_CPU
    };
    info.kind == KIND_LOCKED || info.kind == KIND_ALLOCATED && on_processor()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grain_is_changed_where_named_and_added_for_a_card() {
        let pairs = |list: &[(u64, u64)], named| {
            let list = list.iter().map(|&(name, value)| Attribute { name, value }).collect();
            coarsened(list, named).iter().map(|a| (a.name, a.value)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&[(8, 77), (GRAIN, 0)], true), [(8, 77), (GRAIN, 1)]);
        assert_eq!(pairs(&[(8, 77), (GRAIN, 0)], false), [(8, 77), (GRAIN, 0)]);
        assert_eq!(pairs(&[(8, 77)], true), [(8, 77)]);
        assert_eq!(pairs(&[(0x200, 9)], false), [(0x200, 9), (GRAIN, 1)]);
        assert_eq!(pairs(&[(0x201, 9), (3, 1)], true), [(0x201, 9), (3, 1), (GRAIN, 1)]);
        assert_eq!(pairs(&[(0x202, 9)], true), [(0x202, 9)]);
        assert_eq!(pairs(&[(GRAIN, 0), (0x200, 9)], true), [(GRAIN, 1), (0x200, 9)]);
        assert_eq!(pairs(&[], true), []);
    }
}
