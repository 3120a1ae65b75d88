//! The state that waves start with ("Initial Kernel Execution State", LLVM's AMDGPU guide).

use crate::descriptor::UserSgprs;
use crate::wave::EXEC;
use crate::{Dispatch, Lds, Register, SCRATCH_BASE, Stop, Wave};

/// Work-items of a workgroup, at most.
const MAX_WORKGROUP: u32 = 1024;
/// LDS of a workgroup, at most.
const MAX_LDS: u32 = 64 * 1024;
/// Scratch of a wave, at most: 13 bits of kilobytes (COMPUTE_TMPRING_SIZE).
const MAX_SCRATCH: u64 = 8 << 20;

/// A dispatch that was found runnable.
pub(crate) struct Launch<'a> {
    pub(crate) dispatch: &'a Dispatch,
    /// Workgroups in x, y, z.
    pub(crate) groups: [u32; 3],
    pub(crate) wave64: bool,
    pub(crate) vgprs: usize,
    /// Address of the first instruction.
    pub(crate) entry: u64,
    /// Scratch dwords of a wave.
    pub(crate) scratch: usize,
    user: Vec<u32>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(dispatch: &'a Dispatch) -> Result<Self, Stop> {
        let refuse = |reason: String| Err(Stop::Dispatch { reason });
        let size = dispatch.workgroup.map(u32::from);
        // Three times 16 bits.
        let items: u64 = size.iter().map(|&size| u64::from(size)).product();
        if items == 0 || items > u64::from(MAX_WORKGROUP) {
            return refuse(format!("a workgroup of {size:?} work-items; 1 to {MAX_WORKGROUP} are possible"));
        }
        if dispatch.group_segment > MAX_LDS {
            return refuse(format!("{} bytes of LDS; {MAX_LDS} are possible", dispatch.group_segment));
        }
        let descriptor = &dispatch.descriptor;
        let wave64 = !descriptor.wave32();
        let lanes = if wave64 { 64 } else { 32 };
        let scratch = u64::from(dispatch.private_segment).next_multiple_of(4) * lanes;
        if scratch > MAX_SCRATCH {
            return refuse(format!("{scratch} bytes of scratch for a wave; {MAX_SCRATCH} are possible"));
        }
        let mut launch = Self {
            dispatch,
            groups: dispatch.workgroups(),
            wave64,
            vgprs: descriptor.vgprs(),
            entry: dispatch.entry(),
            scratch: (scratch / 4) as usize,
            user: Vec::new(),
        };
        launch.user = launch.user_sgprs();
        Ok(launch)
    }

    /// Workgroups in all; more than there is time for are as good as any other such number.
    pub(crate) fn total(&self) -> u64 {
        self.groups.iter().fold(1, |all, &groups| all.saturating_mul(groups.into()))
    }

    /// The `n`-th workgroup's id; x runs fastest.
    pub(crate) fn group(&self, n: u64) -> [u32; 3] {
        let [x, y, _] = self.groups.map(u64::from);
        [(n % x) as u32, (n / x % y) as u32, (n / x / y) as u32]
    }

    fn user_sgprs(&self) -> Vec<u32> {
        let d = self.dispatch;
        if let Some(user) = &d.user {
            let mut user = user.clone();
            user.resize(d.descriptor.user_sgprs(), 0);
            return user;
        }
        let pair = |v: u64| vec![v as u32, (v >> 32) as u32];
        let mut user = Vec::new();
        for (i, (value, count)) in UserSgprs::ORDER.into_iter().enumerate() {
            if !d.descriptor.wants(i) {
                continue;
            }
            let words = match value {
                UserSgprs::PrivateSegmentBuffer => self.scratch_descriptor().to_vec(),
                UserSgprs::DispatchPtr => pair(d.packet),
                UserSgprs::QueuePtr => pair(d.queue),
                UserSgprs::KernargPtr => pair(d.kernarg),
                UserSgprs::DispatchId => pair(d.id),
                UserSgprs::FlatScratchInit => pair(SCRATCH_BASE),
                UserSgprs::PrivateSegmentSize => vec![d.private_segment],
            };
            debug_assert_eq!(words.len(), count);
            user.extend(words);
        }
        user.resize(d.descriptor.user_sgprs(), 0);
        user
    }

    /// The buffer descriptor that ROCr and the packet processor make for scratch: swizzled by dwords over the lanes,
    /// lane ids added (RDNA ISA 8.1.8).
    fn scratch_descriptor(&self) -> [u32; 4] {
        const SWIZZLE: u32 = 1 << 31;
        const ADD_TID: u32 = 1 << 23;
        const FORMAT_32_UINT: u32 = 20 << 12;
        const RESOURCE_LEVEL: u32 = 1 << 24;
        const NO_STRIDE_CHECK: u32 = 2 << 28;
        let index_stride = if self.wave64 { 3 } else { 2 } << 21;
        [
            SCRATCH_BASE as u32,
            (SCRATCH_BASE >> 32) as u32 | SWIZZLE,
            self.scratch as u32 * 4,
            index_stride | ADD_TID | FORMAT_32_UINT | RESOURCE_LEVEL | NO_STRIDE_CHECK,
        ]
    }

    /// Work-items of a workgroup in x, y, z: fewer at the grid's edges.
    fn size(&self, group: [u32; 3]) -> [u32; 3] {
        [0, 1, 2].map(|i| {
            let full = u32::from(self.dispatch.workgroup[i]);
            full.min(self.dispatch.grid[i] - group[i] * full)
        })
    }

    /// Waves of a workgroup.
    pub(crate) fn waves(&self, group: [u32; 3]) -> u32 {
        self.size(group).iter().product::<u32>().div_ceil(self.lanes())
    }

    fn lanes(&self) -> u32 {
        if self.wave64 { 64 } else { 32 }
    }

    /// A workgroup's LDS.
    pub(crate) fn lds(&self, strict: bool) -> Lds {
        let bytes = self.dispatch.group_segment;
        let mut lds = if strict { Lds::strict(bytes) } else { Lds::new(bytes) };
        lds.cu_mode = self.cu_mode();
        lds
    }

    /// One compute unit runs a workgroup, not both of a WGP.
    pub(crate) fn cu_mode(&self) -> bool {
        const WGP_MODE: u32 = 1 << 29;
        self.dispatch.descriptor.rsrc1 & WGP_MODE == 0
    }

    /// SGPRs that [`Launch::start`] sets.
    pub(crate) fn sgprs(&self) -> usize {
        let d = &self.dispatch.descriptor;
        let ids = d.workgroup_ids().into_iter().filter(|&b| b).count();
        self.user.len() + ids + usize::from(d.workgroup_info()) + usize::from(d.scratch_offset())
    }

    /// Makes `wave` the `number`-th of a workgroup.
    pub(crate) fn start(&self, wave: &mut Wave, group: [u32; 3], number: u32) {
        let descriptor = &self.dispatch.descriptor;
        wave.sgpr = [0; 128];
        wave.sgpr[..self.user.len()].copy_from_slice(&self.user);
        let mut at = self.user.len();
        let mut push = |value: u32| {
            wave.sgpr[at] = value;
            at += 1;
        };
        let ids = group.into_iter().zip(self.dispatch.first_group).map(|(id, first)| id.wrapping_add(first));
        for (wanted, id) in descriptor.workgroup_ids().into_iter().zip(ids) {
            if wanted {
                push(id);
            }
        }
        let waves = self.waves(group);
        if descriptor.workgroup_info() {
            // The wave's number stands in the place of the ordered append's term; Mesa's compiler reads it there.
            push(u32::from(number == 0) << 31 | number << 6 | waves);
        }
        if descriptor.scratch_offset() {
            push(0); // each wave's scratch is at SCRATCH_BASE
        }
        let rows = self.vgprs << u8::from(self.wave64);
        wave.vgpr.clear();
        wave.vgpr.resize(rows, Register([0; 32]));
        (wave.vgprs, wave.wave64, wave.half) = (self.vgprs, self.wave64, 0);
        (wave.scc, wave.mode, wave.trapsts) = (false, descriptor.mode(), 0);
        wave.flat_scratch = 0;
        self.work_items(wave, group, number);
        wave.hardware.wave = number;
        // Slot, SIMD and WGP, as if workgroups went over the card in turn.
        let wgp = (group[0] ^ group[1] ^ group[2]) % 16;
        wave.hardware.id1 = (number / 4 % 20) | ((number % 4) << 8) | (wgp << 10);
        wave.hardware.id2 = 0;
        wave.hardware.gpr_alloc = (descriptor.rsrc1 & 63) << 8;
        wave.hardware.lds_alloc = self.dispatch.group_segment.div_ceil(256) << 12;
    }

    /// Work-item ids into v0 to v2, and EXEC.
    fn work_items(&self, wave: &mut Wave, group: [u32; 3], number: u32) {
        let [x, y, z] = self.size(group);
        let ids = self.dispatch.descriptor.work_item_ids();
        for lane in 0..self.lanes() {
            let item = number * self.lanes() + lane;
            if item >= x * y * z {
                break;
            }
            let (half, column) = (lane as usize / 32, lane as usize % 32);
            wave.sgpr[EXEC + half] |= 1 << column;
            for (i, id) in [item % x, item / x % y, item / x / y].into_iter().enumerate().take(ids) {
                wave.vgpr[half * self.vgprs + i][column] = id;
            }
        }
    }
}
