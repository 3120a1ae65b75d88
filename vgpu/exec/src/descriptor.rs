//! Kernel descriptors: what a kernel needs of a wave ("Kernel Descriptor", LLVM's AMDGPU guide).

use crate::Stop;

/// Bytes of a descriptor in memory.
pub const DESCRIPTOR_BYTES: usize = 64;

/// A kernel descriptor. Code object v2's header of 256 bytes has the same fields at other offsets:
/// [`Descriptor::parse`] tells them apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Static LDS, bytes.
    pub group_segment: u32,
    /// Scratch, bytes of a work-item.
    pub private_segment: u32,
    /// Kernel arguments, bytes; 0 in code objects before v4.
    pub kernarg_bytes: u32,
    /// The first instruction, relative to the descriptor.
    pub entry: i64,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// Which values the first SGPRs hold, and wave32.
    pub properties: u16,
}

/// Values that a kernel may ask for in its first SGPRs, in their order, with the SGPRs each takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserSgprs {
    PrivateSegmentBuffer,
    DispatchPtr,
    QueuePtr,
    KernargPtr,
    DispatchId,
    FlatScratchInit,
    PrivateSegmentSize,
}

impl UserSgprs {
    pub(crate) const ORDER: [(Self, usize); 7] = [
        (Self::PrivateSegmentBuffer, 4),
        (Self::DispatchPtr, 2),
        (Self::QueuePtr, 2),
        (Self::KernargPtr, 2),
        (Self::DispatchId, 2),
        (Self::FlatScratchInit, 2),
        (Self::PrivateSegmentSize, 1),
    ];
}

impl Descriptor {
    /// Reads a descriptor (64 bytes), or as much of a code object v2 header (at least 64 of its 256 bytes).
    ///
    /// # Errors
    /// [`Stop::Dispatch`] where the bytes are neither.
    pub fn parse(bytes: &[u8]) -> Result<Self, Stop> {
        let bytes: &[u8; DESCRIPTOR_BYTES] = bytes
            .get(..DESCRIPTOR_BYTES)
            .and_then(|b| b.try_into().ok())
            .ok_or_else(|| Stop::Dispatch { reason: "a kernel descriptor has 64 bytes".into() })?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        // The old header starts with its version 1.x, machine kind 1 (AMDGPU) and version 10; a descriptor has LDS and
        // scratch sizes there, then the size of the arguments, which is no 0xa0001.
        if word(0) == 1 && word(8) == 0x000a_0001 {
            return Ok(Self {
                group_segment: 0,
                private_segment: word(60),
                kernarg_bytes: 0,
                entry: long(16) as i64,
                rsrc1: word(48),
                rsrc2: word(52),
                rsrc3: 0,
                properties: word(56) as u16,
            });
        }
        Ok(Self {
            group_segment: word(0),
            private_segment: word(4),
            kernarg_bytes: word(8),
            entry: long(16) as i64,
            rsrc1: word(48),
            rsrc2: word(52),
            rsrc3: word(44),
            properties: u16::from_le_bytes([bytes[56], bytes[57]]),
        })
    }

    /// Waves of 32 lanes.
    pub fn wave32(&self) -> bool {
        self.properties >> 10 & 1 == 1
    }

    /// VGPRs of a lane: granules of 8 in wave32, 4 in wave64.
    pub fn vgprs(&self) -> usize {
        (((self.rsrc1 & 63) + 1) as usize) << if self.wave32() { 3 } else { 2 }
    }

    /// SGPRs loaded by the packet processor's setup before workgroup ids.
    pub fn user_sgprs(&self) -> usize {
        (self.rsrc2 >> 1 & 31) as usize
    }

    /// The bits that MODE starts with: rounding, denormals, DX10_CLAMP, IEEE.
    pub fn mode(&self) -> u32 {
        let float = self.rsrc1 >> 12 & 0xff;
        let dx10_clamp = self.rsrc1 >> 21 & 1;
        let ieee = self.rsrc1 >> 23 & 1;
        float | dx10_clamp << 8 | ieee << 9
    }

    /// Whether the descriptor asks for the `i`-th of [`UserSgprs::ORDER`].
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.properties >> i & 1 == 1
    }

    /// Which of x, y, z workgroup ids come in SGPRs.
    pub(crate) fn workgroup_ids(&self) -> [bool; 3] {
        [7, 8, 9].map(|bit| self.rsrc2 >> bit & 1 == 1)
    }

    /// `workgroup_info` comes in an SGPR.
    pub(crate) fn workgroup_info(&self) -> bool {
        self.rsrc2 >> 10 & 1 == 1
    }

    /// The wave's scratch offset comes in an SGPR.
    pub(crate) fn scratch_offset(&self) -> bool {
        self.rsrc2 & 1 == 1
    }

    /// Work-item ids in VGPRs: 1 x, 2 x and y, 3 all.
    pub(crate) fn work_item_ids(&self) -> usize {
        ((self.rsrc2 >> 11 & 3) + 1) as usize
    }
}
