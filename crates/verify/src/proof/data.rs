//! Host tensors in the storage type of a problem.

use half::{bf16, f16};
use rayon::prelude::*;
use wave32_cpu::{TensorMut, TensorRef};
use wave32_problem::DType;

/// Elements of one storage type.
#[derive(Debug, Clone)]
pub enum Data {
    /// binary32.
    F32(Vec<f32>),
    /// binary16.
    F16(Vec<f16>),
    /// bfloat16.
    BF16(Vec<bf16>),
}

/// The allocation that a tensor would need did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of host memory: {0} bytes wanted")]
pub struct NoMemory(pub u64);

/// An empty vector with room for `len`, or the error instead of an abort.
fn reserve<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(len).map_err(|_| NoMemory((len as u64).saturating_mul(size_of::<T>() as u64)))?;
    Ok(vec)
}

impl Data {
    /// `len` elements of `dtype`, each rounded from what `value` gives.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn generate(dtype: DType, len: u64, mut value: impl FnMut() -> f32) -> Result<Self, NoMemory> {
        let len = usize::try_from(len).map_err(|_| NoMemory(len))?;
        Ok(match dtype {
            DType::F32 => {
                let mut v = reserve(len)?;
                v.extend((0..len).map(|_| value()));
                Self::F32(v)
            }
            DType::F16 => {
                let mut v = reserve(len)?;
                v.extend((0..len).map(|_| f16::from_f32(value())));
                Self::F16(v)
            }
            DType::BF16 => {
                let mut v = reserve(len)?;
                v.extend((0..len).map(|_| bf16::from_f32(value())));
                Self::BF16(v)
            }
        })
    }

    /// `len` elements of `dtype`, each rounded from what `value` gives for its index; by all cores.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn of_indices(dtype: DType, len: u64, value: impl Fn(u64) -> f32 + Sync) -> Result<Self, NoMemory> {
        let len = usize::try_from(len).map_err(|_| NoMemory(len))?;
        let indices = || (0..len).into_par_iter().with_min_len(1 << 14).map(|index| value(index as u64));
        // Reserved before, so nothing is allocated, and nothing aborts, in between.
        Ok(match dtype {
            DType::F32 => {
                let mut v = reserve(len)?;
                indices().collect_into_vec(&mut v);
                Self::F32(v)
            }
            DType::F16 => {
                let mut v = reserve(len)?;
                indices().map(f16::from_f32).collect_into_vec(&mut v);
                Self::F16(v)
            }
            DType::BF16 => {
                let mut v = reserve(len)?;
                indices().map(bf16::from_f32).collect_into_vec(&mut v);
                Self::BF16(v)
            }
        })
    }

    /// `len` elements whose every byte is `byte`.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn filled(dtype: DType, len: u64, byte: u8) -> Result<Self, NoMemory> {
        let len = usize::try_from(len).map_err(|_| NoMemory(len))?;
        Ok(match dtype {
            DType::F32 => {
                let mut v = reserve(len)?;
                v.resize(len, f32::from_bits(u32::from_ne_bytes([byte; 4])));
                Self::F32(v)
            }
            DType::F16 => {
                let mut v = reserve(len)?;
                v.resize(len, f16::from_bits(u16::from_ne_bytes([byte; 2])));
                Self::F16(v)
            }
            DType::BF16 => {
                let mut v = reserve(len)?;
                v.resize(len, bf16::from_bits(u16::from_ne_bytes([byte; 2])));
                Self::BF16(v)
            }
        })
    }

    /// The first element that `holds` of, looked for by all cores.
    pub fn position(&self, holds: impl Fn(f64) -> bool + Sync) -> Option<usize> {
        // By pieces: the search itself then costs nothing beside the elements.
        const PIECE: usize = 1 << 16;
        fn first<T: Sync>(v: &[T], holds: impl Fn(&T) -> bool + Sync) -> Option<usize> {
            let pieces = v.par_chunks(PIECE).enumerate();
            pieces.find_map_first(|(at, piece)| Some(at * PIECE + piece.iter().position(&holds)?))
        }
        match self {
            Self::F32(v) => first(v, |&x| holds(f64::from(x))),
            Self::F16(v) => first(v, |x| holds(x.to_f64())),
            Self::BF16(v) => first(v, |x| holds(x.to_f64())),
        }
    }

    /// The storage type.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::BF16(_) => DType::BF16,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
            Self::BF16(v) => v.len(),
        }
    }

    /// True for no elements at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`, exactly.
    pub fn get(&self, index: usize) -> f64 {
        match self {
            Self::F32(v) => f64::from(v[index]),
            Self::F16(v) => v[index].to_f64(),
            Self::BF16(v) => v[index].to_f64(),
        }
    }

    /// The bytes as they lie in a device buffer.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::F32(v) => bytemuck::cast_slice(v),
            Self::F16(v) => bytemuck::cast_slice(v),
            Self::BF16(v) => bytemuck::cast_slice(v),
        }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::F32(v) => bytemuck::cast_slice_mut(v),
            Self::F16(v) => bytemuck::cast_slice_mut(v),
            Self::BF16(v) => bytemuck::cast_slice_mut(v),
        }
    }

    /// The elements as an operand of the CPU backend.
    pub fn view(&self) -> TensorRef<'_> {
        match self {
            Self::F32(v) => TensorRef::F32(v),
            Self::F16(v) => TensorRef::F16(v),
            Self::BF16(v) => TensorRef::BF16(v),
        }
    }

    /// Elements `range` as the CPU backend's result.
    pub fn view_mut(&mut self, range: std::ops::Range<usize>) -> TensorMut<'_> {
        match self {
            Self::F32(v) => TensorMut::F32(&mut v[range]),
            Self::F16(v) => TensorMut::F16(&mut v[range]),
            Self::BF16(v) => TensorMut::BF16(&mut v[range]),
        }
    }

    /// A copy of elements `range`.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        match self {
            Self::F32(v) => Self::F32(v[range].to_vec()),
            Self::F16(v) => Self::F16(v[range].to_vec()),
            Self::BF16(v) => Self::BF16(v[range].to_vec()),
        }
    }

    /// Widened to f64, exactly.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn to_f64(&self) -> Result<Vec<f64>, NoMemory> {
        let mut wide = reserve(self.len())?;
        match self {
            Self::F32(v) => wide.extend(v.iter().map(|&x| f64::from(x))),
            Self::F16(v) => wide.extend(v.iter().map(|x| x.to_f64())),
            Self::BF16(v) => wide.extend(v.iter().map(|x| x.to_f64())),
        }
        Ok(wide)
    }

    /// Widened to f32, exactly.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn to_f32(&self) -> Result<Self, NoMemory> {
        let mut wide = reserve(self.len())?;
        match self {
            Self::F32(v) => wide.extend_from_slice(v),
            Self::F16(v) => wide.extend(v.iter().map(|x| x.to_f32())),
            Self::BF16(v) => wide.extend(v.iter().map(|x| x.to_f32())),
        }
        Ok(Self::F32(wide))
    }
}
