//! A wave's registers.

/// 32 lanes.
pub type Row = [u32; 32];

/// A vector register over 32 lanes: within cache lines, or every second access to it would touch two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct Register(pub Row);

impl std::ops::Deref for Register {
    type Target = Row;

    #[inline(always)]
    fn deref(&self) -> &Row {
        &self.0
    }
}

impl std::ops::DerefMut for Register {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Row {
        &mut self.0
    }
}

/// Where flat addresses mean LDS (`src_shared_base`), as the kernel driver lays the apertures out.
pub const SHARED_BASE: u64 = 0x1_0000_0000_0000;
/// Where flat addresses mean a lane's scratch (`src_private_base`).
pub const PRIVATE_BASE: u64 = 0x2_0000_0000_0000;
/// The scratch buffer's address that kernels get in their descriptor and flat-scratch SGPRs. No memory lies there: each
/// wave's scratch is its own, and all waves see it at this address.
pub const SCRATCH_BASE: u64 = 0x0000_6f00_0000_0000;

/// VCC, its low half.
pub const VCC: usize = 106;
/// M0.
pub const M0: usize = 124;
/// EXEC, its low half.
pub const EXEC: usize = 126;

/// A wave's state. Of a wave64, each half's registers follow the other's, and `half` says whose turn it is.
#[derive(Debug, Clone)]
pub struct Wave {
    /// Scalar registers by operand code: 0 to 105, VCC 106/107, M0 124, NULL 125 (kept 0), EXEC 126/127.
    pub sgpr: [u32; 128],
    /// Vector registers: register `r` of half `h` is row `h * vgprs + r`.
    pub vgpr: Vec<Register>,
    /// Rows of a half.
    pub vgprs: usize,
    /// The half that vector handlers work on: 0, or 1 in the second pass of a wave64.
    pub half: usize,
    /// 64 lanes.
    pub wave64: bool,
    /// The scalar condition bit.
    pub scc: bool,
    /// MODE (RDNA ISA 3.2.2): rounding, denormals, DX10_CLAMP, IEEE.
    pub mode: u32,
    /// FLAT_SCRATCH, set through `s_setreg`: what flat and scratch addresses are relative to.
    pub flat_scratch: u64,
    /// TRAPSTS as `s_setreg` left it; nothing here raises exceptions.
    pub trapsts: u32,
    /// What `s_getreg` reads of HW_ID1, HW_ID2 and LDS_ALLOC.
    pub hardware: Hardware,
}

/// Where a wave sits, as the hardware registers tell it (RDNA ISA 5.9, "hardware register values").
#[derive(Debug, Clone, Copy, Default)]
pub struct Hardware {
    /// HW_ID1.
    pub id1: u32,
    /// HW_ID2.
    pub id2: u32,
    /// GPR_ALLOC.
    pub gpr_alloc: u32,
    /// LDS_ALLOC.
    pub lds_alloc: u32,
    /// Its number in the workgroup.
    pub wave: u32,
}

impl Wave {
    /// A wave whose registers are all zero, all lanes on, float mode as the ABI wants it (denormals kept, IEEE, clamp).
    pub fn new(vgprs: usize, wave64: bool) -> Self {
        let mut sgpr = [0; 128];
        sgpr[EXEC] = u32::MAX;
        sgpr[EXEC + 1] = if wave64 { u32::MAX } else { 0 };
        Self {
            sgpr,
            vgpr: vec![Register([0; 32]); vgprs << u8::from(wave64)],
            vgprs,
            half: 0,
            wave64,
            scc: false,
            mode: 0x3f0,
            flat_scratch: 0,
            trapsts: 0,
            hardware: Hardware::default(),
        }
    }

    /// EXEC of the current half.
    pub fn exec(&self) -> u32 {
        self.sgpr[EXEC + self.half]
    }

    /// The row of VGPR `r` in the current half.
    pub fn row(&self, r: usize) -> &Row {
        &self.vgpr[self.half * self.vgprs + r]
    }

    /// See [`Wave::row`].
    pub fn row_mut(&mut self, r: usize) -> &mut Row {
        &mut self.vgpr[self.half * self.vgprs + r]
    }

    /// A mask operand's bits of the current half: VCC and SGPR pairs hold both halves.
    pub fn mask(&self, sgpr: usize) -> u32 {
        self.sgpr[sgpr + self.half]
    }

    /// A scalar source by operand code: a register, or what the unit makes up (RDNA ISA 6.2): SCC, VCCZ, EXECZ,
    /// apertures.
    pub fn scalar(&self, code: u8) -> u32 {
        match code {
            0..=127 => self.sgpr[usize::from(code)],
            235 => (SHARED_BASE >> 32) as u32,
            237 => (PRIVATE_BASE >> 32) as u32,
            236 | 238 => u32::MAX,
            251 => u32::from(self.wide_mask(VCC) == 0),
            252 => u32::from(self.wide_mask(EXEC) == 0),
            253 => u32::from(self.scc),
            _ => 0,
        }
    }

    /// A 64-bit scalar source by operand code.
    pub fn scalar64(&self, code: u8) -> u64 {
        match code {
            125 => 0,
            0..=126 => {
                let i = usize::from(code);
                u64::from(self.sgpr[i]) | u64::from(self.sgpr[i + 1]) << 32
            }
            235 => SHARED_BASE,
            236 => SHARED_BASE | 0xffff_ffff,
            237 => PRIVATE_BASE,
            238 => PRIVATE_BASE | 0xffff_ffff,
            _ => u64::from(self.scalar(code)),
        }
    }

    /// Writes a scalar register; NULL swallows it.
    pub fn set_scalar(&mut self, code: u16, value: u32) {
        self.sgpr[usize::from(code) & 127] = value;
        self.sgpr[125] = 0;
    }

    /// Writes a pair of scalar registers, low half first.
    pub fn set_scalar64(&mut self, code: u16, value: u64) {
        self.set_scalar(code, value as u32);
        if code != 125 {
            self.set_scalar(code + 1, (value >> 32) as u32);
        }
    }

    /// VCC or EXEC over the wave's width.
    pub fn wide_mask(&self, sgpr: usize) -> u64 {
        let high = if self.wave64 { u64::from(self.sgpr[sgpr + 1]) << 32 } else { 0 };
        u64::from(self.sgpr[sgpr]) | high
    }
}
