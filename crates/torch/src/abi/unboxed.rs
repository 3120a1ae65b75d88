//! Arguments and results as C++ passes them, and how an operator's C++ function is set.
//!
//! A kernel that came through the C ABI or through Python is called with a stack of values that own what they name. Torch
//! makes that stack for each call; of a list of tensors it makes a handle each. Most calls come from C++, where the
//! arguments lie ready. So the function that takes them as they lie ("unboxed") is set beside the one that takes a stack,
//! in the operator's `c10::KernelFunction`; Python's calls of `torch.ops` go the old way.
//!
//! | schema | C++ | here |
//! |---|---|---|
//! | `Tensor`, `Tensor(a!)` | `at::Tensor const&`, `at::Tensor&` | [`Handle`] |
//! | `Tensor?` | `std::optional<at::Tensor> const&` | `*const MaybeTensor` |
//! | `Tensor[]` of `_foreach_` | `c10::ArrayRef<at::Tensor>` | [`Slice`] |
//! | `int`, `SymInt`, `float`, `bool` | `int64_t`, `double`, `bool` | `i64`, `f64`, `bool` |
//! | `int[]`, `SymInt[]`, `float[]` | `c10::ArrayRef` | [`Slice`] |
//! | `bool[3]` | `std::array<bool, 3>` | `[u8; 3]` |
//! | `ScalarType`, `MemoryFormat`, `Layout` | enumerations of one byte | `i8` |
//! | `Scalar`, `Scalar[]` | `c10::Scalar const&`, `c10::ArrayRef<c10::Scalar>` | `*const CxxScalar`, [`Slice`] |
//! | `X?` | `std::optional<X>` | [`Maybe`] |
//!
//! Integers are plain: torch calls such a function only with numbers.

use crate::abi::calls::{Device as CxxDevice, Handle, Maybe, MaybeTensor, Slice, Word, api};
use crate::abi::error::Error;
use crate::abi::stack::{Argument, Device, Generator, Layout, Return};
use crate::dispatch::scalar::Either;
use crate::tensors::dtype;
use crate::tensors::tensor::Tensor;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use wave32_torch_logic::{Dims, MemoryFormat, Scalar, ScalarType};

/// A parameter of a kernel as C++ passes it.
pub trait Passed: Argument {
    /// The schema's types that C++ passes so, without what says that they are written to; none where it never does.
    const SCHEMA: &'static [&'static str];
    /// What arrives.
    type Cxx: Copy;
    /// What holds it during the call, and gives nothing away that it does not own.
    type Held: Deref<Target = Self::Owned>;
    /// Takes it.
    ///
    /// # Errors
    /// `Invalid` for what the device does not know.
    ///
    /// # Safety
    /// `given` is what C++ passes for this type, and lives as long as what is made of it.
    unsafe fn hold(given: Self::Cxx) -> Result<Self::Held, Error>;

    /// The tensor that it is, which an operator that writes to it answers.
    fn tensor(_given: Self::Cxx) -> Handle {
        std::ptr::null_mut()
    }
}

/// An argument that was copied.
pub struct Copied<T>(T);

impl<T> Deref for Copied<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Handles to the elements of a list that the caller owns.
pub struct Lent(Vec<Tensor>);

impl Deref for Lent {
    type Target = Vec<Tensor>;
    fn deref(&self) -> &Vec<Tensor> {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.drain(..).for_each(std::mem::forget);
    }
}

/// `c10::Scalar`: which member of the union is set, and the union, whose largest is two doubles.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
pub struct CxxScalar {
    kind: i32,
    value: AlignedPair,
}

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy)]
struct AlignedPair([u64; 2]);

impl CxxScalar {
    fn get(&self) -> Result<Scalar, Error> {
        let AlignedPair([low, high]) = self.value;
        Ok(match self.kind {
            0 => Scalar::Float(f64::from_bits(low)),
            1 => Scalar::Int(low as i64),
            3 => Scalar::Complex(f64::from_bits(low), f64::from_bits(high)),
            4 => Scalar::Bool(low & 1 != 0),
            _ => return Err(Error::NoKernel("a number of more than 63 bits".into())),
        })
    }
}

impl Passed for &Tensor {
    const SCHEMA: &'static [&'static str] = &["Tensor"];
    type Cxx = Handle;
    type Held = ManuallyDrop<Tensor>;
    unsafe fn hold(given: Handle) -> Result<Self::Held, Error> {
        // SAFETY: a reference to an `at::Tensor` is what a handle is; the caller keeps it.
        Ok(ManuallyDrop::new(unsafe { Tensor::from_handle(given) }))
    }
    fn tensor(given: Handle) -> Handle {
        given
    }
}

impl Passed for Option<&Tensor> {
    const SCHEMA: &'static [&'static str] = &["Tensor?"];
    type Cxx = *const MaybeTensor;
    type Held = ManuallyDrop<Option<Tensor>>;
    unsafe fn hold(given: Self::Cxx) -> Result<Self::Held, Error> {
        // SAFETY: by the caller; the optional's value lies at its start.
        let held = unsafe { (*given).get().map(|_| Tensor::from_handle(given.cast_mut().cast())) };
        Ok(ManuallyDrop::new(held))
    }
}

impl Passed for &[Tensor] {
    const SCHEMA: &'static [&'static str] = &["Tensor[]"];
    type Cxx = Slice<usize>;
    type Held = Lent;
    unsafe fn hold(given: Self::Cxx) -> Result<Self::Held, Error> {
        // SAFETY: by the caller; an element, which is one pointer, is an `at::Tensor` that lies where the handle says.
        let all = unsafe { given.get() }.iter();
        // SAFETY: as above.
        Ok(Lent(
            all.map(|slot| unsafe { Tensor::from_handle(std::ptr::from_ref(slot).cast_mut().cast()) })
                .collect(),
        ))
    }
}

impl Passed for &Either {
    const SCHEMA: &'static [&'static str] = &["Tensor"];
    type Cxx = Handle;
    type Held = ManuallyDrop<Either>;
    unsafe fn hold(given: Handle) -> Result<Self::Held, Error> {
        // SAFETY: as of a tensor. A number arrives as a tensor of the CPU that torch knows for one.
        Ok(ManuallyDrop::new(Either::Tensor(unsafe { Tensor::from_handle(given) })))
    }
}

macro_rules! passed {
    ($($type:ty: $schema:expr, $cxx:ty, $given:ident => $take:expr;)*) => {$(
        impl Passed for $type {
            const SCHEMA: &'static [&'static str] = &$schema;
            type Cxx = $cxx;
            type Held = Copied<<Self as Argument>::Owned>;
            unsafe fn hold($given: $cxx) -> Result<Self::Held, Error> {
                Ok(Copied($take))
            }
        }
    )*};
}

/// # Safety
/// As of [`Slice::get`].
unsafe fn scalars(given: Slice<CxxScalar>) -> Result<SmallVec<[Scalar; 4]>, Error> {
    // SAFETY: by the caller.
    unsafe { given.get() }.iter().map(CxxScalar::get).collect()
}

// SAFETY (of all): by the caller of `hold`.
passed! {
    i64: ["int", "SymInt"], i64, given => given;
    f64: ["float"], f64, given => given;
    bool: ["bool"], u8, given => given & 1 != 0;
    ScalarType: ["ScalarType"], i8, given => dtype::of_code(given.into())?;
    MemoryFormat: ["MemoryFormat"], i8, given => dtype::format_of_code(given.into())?;
    Layout: ["Layout"], i8, given => Layout(given.into());
    Option<i64>: ["int?", "SymInt?"], Maybe<i64>, given => given.get();
    Option<f64>: ["float?"], Maybe<f64>, given => given.get();
    Option<bool>: ["bool?"], Maybe<u8>, given => given.get().map(|value| value & 1 != 0);
    Option<ScalarType>: ["ScalarType?"], Maybe<i8>, given => given.get().map(|code| dtype::of_code(code.into())).transpose()?;
    Option<MemoryFormat>: ["MemoryFormat?"], Maybe<i8>, given =>
        given.get().map(|code| dtype::format_of_code(code.into())).transpose()?;
    Option<Layout>: ["Layout?"], Maybe<i8>, given => given.get().map(|code| Layout(code.into()));
    Option<Device>: ["Device?"], Maybe<CxxDevice>, given => given.get().map(Device::from);
    // SAFETY: above.
    &[i64]: ["int[]", "SymInt[]"], Slice<i64>, given => Dims::from_slice(unsafe { given.get() });
    // SAFETY: above.
    &[f64]: ["float[]"], Slice<f64>, given => SmallVec::from_slice(unsafe { given.get() });
    &[bool]: ["bool[3]"], [u8; 3], given => given.iter().map(|value| value & 1 != 0).collect();
    // SAFETY: above.
    Option<&[i64]>: ["int[]?", "SymInt[]?"], Maybe<Slice<i64>>, given => given.get().map(|all| Dims::from_slice(unsafe { all.get() }));
    // SAFETY: above.
    Option<&[f64]>: ["float[]?"], Maybe<Slice<f64>>, given => given.get().map(|all| SmallVec::from_slice(unsafe { all.get() }));
    // SAFETY: above.
    Scalar: ["Scalar"], *const CxxScalar, given => unsafe { &*given }.get()?;
    // SAFETY: above.
    Option<Scalar>: ["Scalar?"], *const Maybe<CxxScalar>, given => unsafe { &*given }.get().map(|value| value.get()).transpose()?;
    // SAFETY: above.
    &[Scalar]: ["Scalar[]"], Slice<CxxScalar>, given => unsafe { scalars(given) }?;
}

macro_rules! never_passed {
    ($($type:ty),*) => {$(
        impl Passed for $type {
            const SCHEMA: &'static [&'static str] = &[];
            type Cxx = Word;
            type Held = Copied<<Self as Argument>::Owned>;
            unsafe fn hold(_: Word) -> Result<Self::Held, Error> {
                Err(Error::Invalid("this type comes on a stack".into()))
            }
        }
    )*};
}
never_passed!(&[Option<Tensor>], &str, Option<&str>, &Generator, Option<&Generator>, Device);

/// A result of a kernel as C++ takes it.
pub trait Returned: Return {
    /// The schema's type; none where C++ takes it otherwise than in memory of the caller's.
    const SCHEMA: Option<&'static str>;
    /// Writes it where the caller says.
    ///
    /// # Safety
    /// There is room for it.
    unsafe fn place(self, out: *mut Word);
}

/// What an `at::Tensor` is: the pointer that a handle leads to. The handle's own memory is freed.
///
/// # Safety
/// As of [`Returned::place`].
unsafe fn put(tensor: Tensor, out: *mut Word) {
    let handle = tensor.into_word() as *mut Word;
    // SAFETY: by the caller; a handle is an owned `at::Tensor*` of operator new.
    unsafe {
        out.write(*handle);
        (api()._ZdlPv)(handle.cast());
    }
}

impl Returned for Tensor {
    const SCHEMA: Option<&'static str> = Some("Tensor");
    unsafe fn place(self, out: *mut Word) {
        // SAFETY: by the caller.
        unsafe { put(self, out) };
    }
}

impl Returned for () {
    const SCHEMA: Option<&'static str> = Some("()");
    unsafe fn place(self, _: *mut Word) {}
}

macro_rules! in_registers {
    ($($type:ty),*) => {$(
        impl Returned for $type {
            const SCHEMA: Option<&'static str> = None;
            unsafe fn place(self, _: *mut Word) {}
        }
    )*};
}
in_registers!(i64, f64, bool, Vec<Tensor>, Scalar);

macro_rules! tuples {
    ($schema:literal: $($name:ident: $tensor:ty),*) => {
        impl Returned for ($($tensor,)*) {
            const SCHEMA: Option<&'static str> = Some($schema);
            unsafe fn place(self, out: *mut Word) {
                let ($($name,)*) = self;
                // libstdc++'s `std::tuple` has its first member last.
                for (place, tensor) in [$($name,)*].into_iter().rev().enumerate() {
                    // SAFETY: by the caller.
                    unsafe { put(tensor, out.add(place)) };
                }
            }
        }
    };
}
tuples!("Tensor,Tensor": a: Tensor, b: Tensor);
tuples!("Tensor,Tensor,Tensor": a: Tensor, b: Tensor, c: Tensor);
tuples!("Tensor,Tensor,Tensor,Tensor": a: Tensor, b: Tensor, c: Tensor, d: Tensor);
tuples!("Tensor,Tensor,Tensor,Tensor,Tensor": a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor);

/// A kernel's functions for C++, and what they take.
pub struct Functions {
    /// For each parameter the schema's types that it is for.
    pub arguments: Vec<&'static [&'static str]>,
    /// The schema's results.
    pub result: Option<&'static str>,
    /// Writes its result where the first argument says.
    pub by_value: *const (),
    /// Answers its first or its last argument.
    pub first: *const (),
    /// As above.
    pub last: *const (),
}

impl Functions {
    /// The function that torch may call for this schema; none where it passes anything otherwise.
    fn of_schema(&self, schema: &str) -> Option<*const ()> {
        let (arguments, results) = schema.split_once('(')?.1.rsplit_once(") -> ")?;
        let given = types(arguments);
        let lists = schema.starts_with("aten::_foreach_");
        let fits = |(of, takes): (&String, &&[&str])| {
            takes.contains(&plain(of).as_str()) && (lists || !of.ends_with("Tensor[]"))
        };
        if given.len() != self.arguments.len() || !given.iter().zip(&self.arguments).all(fits) {
            return None;
        }
        let results =
            types(results.strip_prefix('(').and_then(|all| all.strip_suffix(')')).unwrap_or(results));
        match (self.result?, &results[..]) {
            ("()", []) => Some(self.first),
            ("Tensor", [one]) if one.ends_with("!)") => {
                let same: Vec<usize> = (0..given.len()).filter(|&i| given[i] == *one).collect();
                match same[..] {
                    [0] => Some(self.first),
                    [index] if index + 1 == given.len() => Some(self.last),
                    _ => None,
                }
            }
            (wanted, all) if all.iter().all(|of| !of.contains('!')) => {
                let all: Vec<String> = all.iter().map(|of| plain(of)).collect();
                (all.join(",") == wanted).then_some(self.by_value)
            }
            _ => None,
        }
    }
}

/// The types of a schema's list: `Tensor(a!) self, int[2] stride=[1, 1]` has `Tensor(a!)` and `int[2]`.
fn types(list: &str) -> Vec<String> {
    let (mut found, mut depth, mut now) = (Vec::new(), 0, String::new());
    for letter in list.chars().chain([',']) {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                let kind = now.trim().split(' ').next().unwrap_or_default();
                if !kind.is_empty() && kind != "*" {
                    found.push(kind.to_string());
                }
                now.clear();
                continue;
            }
            _ => {}
        }
        now.push(letter);
    }
    found
}

/// A type without what it aliases, and without the length of a list of numbers.
fn plain(kind: &str) -> String {
    let kind = match (kind.find('('), kind.find(')')) {
        (Some(from), Some(to)) => format!("{}{}", &kind[..from], &kind[to + 1..]),
        _ => kind.to_string(),
    };
    match kind.split_once('[') {
        Some((of, rest)) if of != "bool" => {
            format!("{of}[{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => kind,
    }
}

/// `c10::KernelFunction`, as far as it is read here: what the function with a stack is called with, that function, the
/// function for C++, and that for C++ with symbolic numbers.
#[repr(C)]
struct KernelFunction {
    functor: usize,
    boxed: usize,
    unboxed: *const (),
    symbolic: usize,
}

/// How libtorch got a kernel: the function for a stack is the same for all that came one way.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// Through the C ABI.
    C,
    /// Through Python.
    Python,
}

/// A kernel that C++ may call by itself.
pub struct Candidate {
    /// Operator and overload, without the namespace.
    pub name: &'static str,
    /// How it came.
    pub way: Way,
    /// Its functions.
    pub functions: fn() -> Functions,
}

/// An operator's kernel that a function was found for.
struct Found {
    name: &'static str,
    entry: Handle,
    kernel: *mut KernelFunction,
    function: *const (),
}

/// Sets the functions of those kernels whose schema in this torch is one that they take; `key` is the dispatch key's
/// number. Kernels that came the same way have the same function for a stack, and none yet for C++. Where one has not,
/// torch's memory is laid out otherwise than is known here, and none is set.
///
/// # Errors
/// `Invalid` for a name with a NUL.
pub fn install(
    key: u16,
    kernels: &[Candidate],
    schemas: &HashMap<String, String>,
) -> Result<Vec<&'static str>, Error> {
    let api = api();
    let (Some(dispatcher), Some(find), Some(kernel_of), Some(update)) =
        (api.dispatcher, api.find_schema, api.kernel_of, api.update_table)
    else {
        return Ok(Vec::new());
    };
    // SAFETY: libtorch's one dispatcher, which lives as long as the process.
    let dispatcher = unsafe { dispatcher() };
    let mut found = Vec::new();
    let mut boxed = [None; 2];
    for &Candidate { name, way, functions } in kernels {
        let Some(schema) = schemas.get(name) else { continue };
        let Some(function) = functions().of_schema(schema) else { continue };
        let (base, overload) = name.split_once('.').unwrap_or((name, ""));
        let text = |text: String| CString::new(text).map_err(|_| Error::Invalid("a name with a NUL".into()));
        let (base, overload) = (text(format!("aten::{base}"))?, text(overload.into())?);
        let mut operator = [std::ptr::null_mut(); 2];
        // SAFETY: `OperatorHandle` is two pointers, the first to the operator's entry; Python gave the schema of one that
        // exists, so nothing is thrown. The answer is the first member of what lies in the entry.
        let (entry, kernel) = unsafe {
            find(operator.as_mut_ptr(), dispatcher, base.as_ptr(), overload.as_ptr());
            (operator[0], kernel_of(operator[0], key).cast::<KernelFunction>())
        };
        if kernel.is_null() {
            continue;
        }
        // SAFETY: a live kernel.
        let KernelFunction { functor, boxed: with_stack, unboxed, symbolic } = unsafe { kernel.read() };
        let is_known = functor != 0
            && with_stack != 0
            && unboxed.is_null()
            && symbolic == 0
            && *boxed[way as usize].get_or_insert(with_stack) == with_stack;
        if !is_known {
            return Ok(Vec::new());
        }
        found.push(Found { name, entry, kernel, function });
    }
    for Found { entry, kernel, function, .. } in &found {
        // SAFETY: checked above; the function's types are the schema's. The dispatch table has copies, which torch makes anew.
        unsafe {
            (*(*kernel)).unboxed = *function;
            update(*entry, dispatcher, key);
        }
    }
    Ok(found.into_iter().map(|found| found.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_schemas() {
        let all =
            types("Tensor(a!) self, Tensor? b, SymInt[2] stride=[1, 1], *, Scalar alpha=1, str s=\"x\"");
        assert_eq!(all, ["Tensor(a!)", "Tensor?", "SymInt[2]", "Scalar", "str"]);
        let plains: Vec<String> =
            ["Tensor(a!)[]", "SymInt[2]?", "bool[3]", "Tensor"].into_iter().map(plain).collect();
        assert_eq!(plains, ["Tensor[]", "SymInt[]?", "bool[3]", "Tensor"]);
    }

    #[test]
    fn functions_of_schemas() {
        let [by_value, first, last] = [1, 2, 3].map(|address: usize| address as *const ());
        let of = |arguments: &[&'static [&'static str]], result| Functions {
            arguments: arguments.to_vec(),
            result,
            by_value,
            first,
            last,
        };
        let (tensor, scalar) = (<&Tensor as Passed>::SCHEMA, <Scalar as Passed>::SCHEMA);
        let add = of(&[tensor, tensor, scalar], Some("Tensor"));
        let one = |name: &str| add.of_schema(name);
        assert_eq!(
            one("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
            Some(by_value)
        );
        assert_eq!(
            one("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"),
            Some(first)
        );
        assert_eq!(one("aten::add.x(Tensor self, Tensor(a!) b, Scalar alpha=1) -> Tensor(a!)"), None);
        assert_eq!(one("aten::add.x(Tensor self, Tensor b, Scalar alpha, int more) -> Tensor"), None);
        assert_eq!(one("aten::add.x(Tensor self, Tensor? b, Scalar alpha) -> Tensor"), None);
        assert_eq!(one("aten::add.x(Tensor self, Tensor b, Scalar alpha) -> (Tensor, Tensor)"), None);
        let out = of(&[tensor, tensor], Some("Tensor"));
        assert_eq!(out.of_schema("aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"), Some(last));
        let lists = of(&[<&[Tensor] as Passed>::SCHEMA], Some("()"));
        assert_eq!(lists.of_schema("aten::_foreach_neg_(Tensor(a!)[] self) -> ()"), Some(first));
        assert_eq!(lists.of_schema("aten::cat(Tensor[] tensors) -> ()"), None);
        let pair = of(&[tensor], Some("Tensor,Tensor"));
        assert_eq!(pair.of_schema("aten::x(Tensor self) -> (Tensor one, Tensor two)"), Some(by_value));
        assert_eq!(pair.of_schema("aten::x(Tensor self) -> (Tensor(a!) one, Tensor(b!) two)"), None);
    }
}
