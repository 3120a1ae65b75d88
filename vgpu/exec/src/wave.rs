//! A wave's registers.

/// A vector register over 32 lanes.
pub type Row = [u32; 32];

/// A wave's state. Of a wave64, each half's registers follow the other's, and `half` says whose turn it is.
#[derive(Debug, Clone)]
pub struct Wave {
    /// Scalar registers by operand code: 0 to 105, VCC 106/107, M0 124, NULL 125 (kept 0), EXEC 126/127.
    pub sgpr: [u32; 128],
    /// Vector registers: register `r` of half `h` is row `h * vgprs + r`.
    pub vgpr: Vec<Row>,
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
}

impl Wave {
    /// EXEC of the current half.
    pub fn exec(&self) -> u32 {
        self.sgpr[126 + self.half]
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
}
