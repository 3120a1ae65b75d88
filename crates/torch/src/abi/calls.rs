//! libtorch's stable C ABI, looked up at run time: one binary serves torch 2.10 and newer.

use crate::abi::error::{Error, interrupt};
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// `at::Tensor*` of libtorch.
pub type Handle = *mut c_void;
/// `c10::ArrayRef`.
#[repr(C)]
#[derive(Debug)]
pub struct Slice<T> {
    first: *const T,
    count: usize,
}

impl<T> Clone for Slice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<T> {}
impl<T> Default for Slice<T> {
    fn default() -> Self {
        Self::of(&[])
    }
}

impl<T> Slice<T> {
    /// As long as `all` lives.
    pub fn of(all: &[T]) -> Self {
        Self { first: all.as_ptr(), count: all.len() }
    }

    /// # Safety
    /// The list lives as long as what is made of the answer.
    pub unsafe fn get<'a>(self) -> &'a [T] {
        // SAFETY: by the caller; an empty list may have no address.
        if self.count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.first, self.count) } }
    }
}

/// `c10::ArrayRef<int64_t>`.
pub type Numbers = Slice<i64>;

/// `c10::Device`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Device {
    /// `c10::DeviceType`.
    pub kind: i8,
    /// Which of that type; -1 is the current one.
    pub index: i8,
}

/// `c10::DeviceType::PrivateUse1`.
pub const PRIVATE_USE_1: i8 = 20;

/// `std::optional` of a plain value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Maybe<T> {
    value: T,
    is_there: bool,
}

impl<T: Copy> Maybe<T> {
    /// The value, where there is one.
    pub fn get(&self) -> Option<T> {
        self.is_there.then_some(self.value)
    }
}

impl<T: Default> From<Option<T>> for Maybe<T> {
    fn from(value: Option<T>) -> Self {
        Self { is_there: value.is_some(), value: value.unwrap_or_default() }
    }
}

/// `std::optional<at::Tensor>`, which callees take by reference: the one pointer that an `at::Tensor` is, not owned.
pub type MaybeTensor = Maybe<usize>;

/// `c10::SourceLocation`.
#[repr(C)]
pub struct SourceLocation {
    /// Function.
    pub function: *const c_char,
    /// Its file.
    pub file: *const c_char,
    /// Line in it.
    pub line: u32,
}

/// `std::string` of libstdc++'s current ABI.
#[repr(C)]
pub struct CxxString {
    /// First byte.
    pub data: *mut u8,
    /// Bytes.
    pub length: usize,
    /// Bytes that there is room for.
    pub capacity: usize,
    /// Of the room for short strings.
    pub rest: usize,
}

/// One slot of a boxed call's stack.
pub type Word = u64;
/// A kernel as libtorch calls it: the stack, its arguments, its results.
pub type Boxed = unsafe extern "C-unwind" fn(*mut Word, u64, u64);

/// The ABI version that this crate is written for (2.10), as libtorch encodes it.
pub const BUILD_VERSION: u64 = (2 << 56) | (10 << 48);

macro_rules! table {
    (required { $($name:ident: $type:ty,)* } optional { $($optional:ident = $symbol:literal: $otype:ty,)* }) => {
        /// The functions; each is documented in torch's `shim.h`.
        #[allow(missing_docs, non_snake_case)]
        pub struct Api {
            $(pub $name: $type,)*
            $(pub $optional: Option<$otype>,)*
        }

        impl Api {
            fn load(libraries: &[Library]) -> Result<Self, Error> {
                Ok(Self {
                    // SAFETY: the types are those of the shim's declarations.
                    $($name: unsafe { find::<$type>(libraries, stringify!($name)) }
                        .ok_or(Error::MissingSymbol(stringify!($name)))?,)*
                    // SAFETY: as above; mangled names fix their own C++ signature.
                    $($optional: if is_hidden($symbol) { None } else { unsafe { find::<$otype>(libraries, $symbol) } },)*
                })
            }

            /// What may be missing, of any torch from 2.10 on: everything outside its stable C ABI that is looked up.
            #[cfg(feature = "fault-injection")]
            pub const OPTIONAL: &[&str] = &[$($symbol,)*];
        }
    };
}

type Get<T> = unsafe extern "C" fn(Handle, *mut T) -> i32;
type Code = unsafe extern "C" fn() -> i32;

/// C++ operators that give a tensor construct it where the first argument says; a `SymInt` is passed by reference.
type Product = unsafe extern "C-unwind" fn(Handle, Handle, Handle) -> Handle;
type Conv = unsafe extern "C-unwind" fn(
    Handle,
    Handle,
    Handle,
    *const MaybeTensor,
    Numbers,
    Numbers,
    Numbers,
    *const i64,
) -> Handle;
type TransposedConv = unsafe extern "C-unwind" fn(
    Handle,
    Handle,
    Handle,
    *const MaybeTensor,
    Numbers,
    Numbers,
    Numbers,
    *const i64,
    Numbers,
) -> Handle;
type ToCopy = unsafe extern "C-unwind" fn(
    Handle,
    Handle,
    Maybe<i8>,
    Maybe<i8>,
    Maybe<Device>,
    Maybe<u8>,
    bool,
    Maybe<i8>,
) -> Handle;
type Softmax = unsafe extern "C-unwind" fn(Handle, Handle, i64, Maybe<i8>) -> Handle;
type Unary = unsafe extern "C-unwind" fn(Handle, Handle) -> Handle;
type Loss = unsafe extern "C-unwind" fn(Handle, Handle, Handle, i64) -> Handle;
type Join = unsafe extern "C-unwind" fn(Handle, Slice<usize>, i64) -> Handle;

table! {
    required {
        aoti_torch_library_init_impl: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char, u32, *mut Handle) -> i32,
        aoti_torch_library_init_fragment: unsafe extern "C" fn(*const c_char, *const c_char, u32, *mut Handle) -> i32,
        aoti_torch_library_def: unsafe extern "C" fn(Handle, *const c_char) -> i32,
        torch_library_impl: unsafe extern "C" fn(Handle, *const c_char, Boxed, u64) -> i32,
        torch_call_dispatcher: unsafe extern "C" fn(*const c_char, *const c_char, *mut Word, u64) -> i32,
        aoti_torch_new_tensor_handle: unsafe extern "C" fn(Handle, *mut Handle) -> i32,
        aoti_torch_new_uninitialized_tensor: unsafe extern "C" fn(*mut Handle) -> i32,
        aoti_torch_delete_tensor_object: unsafe extern "C" fn(Handle) -> i32,
        aoti_torch_is_defined: Get<bool>,
        aoti_torch_get_data_ptr: Get<*mut c_void>,
        aoti_torch_get_dim: Get<i64>,
        aoti_torch_get_numel: Get<i64>,
        aoti_torch_get_sizes: Get<*const i64>,
        aoti_torch_get_strides: Get<*const i64>,
        aoti_torch_get_dtype: Get<i32>,
        aoti_torch_get_device_type: Get<i32>,
        aoti_torch_get_storage_offset: Get<i64>,
        aoti_torch_get_storage_size: Get<i64>,
        aoti_torch_is_contiguous: Get<bool>,
        aoti_torch__reinterpret_tensor: unsafe extern "C" fn(Handle, i64, *const i64, *const i64, i64, *mut Handle) -> i32,
        aoti_torch__alloc_from_pool: unsafe extern "C" fn(Handle, i64, i32, i64, *const i64, *const i64, *mut Handle) -> i32,
        aoti_torch_empty_strided: unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> i32,
        aoti_torch_copy_: unsafe extern "C" fn(Handle, Handle, i32) -> i32,
        aoti_torch_check: unsafe extern "C-unwind" fn(bool, *const c_char, *const c_char, u32, *const c_char),
        aoti_torch_device_type_cpu: Code,
        aoti_torch_device_type_privateuse1: Code,
        aoti_torch_memory_format_contiguous_format: Code,
        aoti_torch_memory_format_channels_last: Code,
        aoti_torch_memory_format_channels_last_3d: Code,
        aoti_torch_memory_format_preserve_format: Code,
        aoti_torch_dtype_float32: Code,
        aoti_torch_dtype_float64: Code,
        aoti_torch_dtype_float16: Code,
        aoti_torch_dtype_bfloat16: Code,
        aoti_torch_dtype_int64: Code,
        aoti_torch_dtype_int32: Code,
        aoti_torch_dtype_int16: Code,
        aoti_torch_dtype_int8: Code,
        aoti_torch_dtype_uint64: Code,
        aoti_torch_dtype_uint32: Code,
        aoti_torch_dtype_uint16: Code,
        aoti_torch_dtype_uint8: Code,
        aoti_torch_dtype_bool: Code,
        aoti_torch_dtype_complex32: Code,
        aoti_torch_dtype_complex64: Code,
        aoti_torch_dtype_complex128: Code,
        aoti_torch_dtype_float8_e5m2: Code,
        aoti_torch_dtype_float8_e4m3fn: Code,
        torch_new_list_reserve_size: unsafe extern "C" fn(usize, *mut Handle) -> i32,
        torch_list_size: unsafe extern "C" fn(Handle, *mut usize) -> i32,
        torch_list_get_item: unsafe extern "C" fn(Handle, usize, *mut Word) -> i32,
        torch_list_push_back: unsafe extern "C" fn(Handle, Word) -> i32,
        torch_delete_list: unsafe extern "C" fn(Handle) -> i32,
        torch_string_length: unsafe extern "C" fn(Handle, *mut usize) -> i32,
        torch_string_c_str: unsafe extern "C" fn(Handle, *mut *const c_char) -> i32,
        torch_delete_string: unsafe extern "C" fn(Handle) -> i32,
        _Znwm: unsafe extern "C" fn(usize) -> *mut c_void,
        _ZdlPv: unsafe extern "C" fn(*mut c_void),
    }
    optional {
        // 2.13 and newer.
        delete_stable_ivalue = "torch_delete_stable_ivalue": unsafe extern "C" fn(*mut Word) -> i32,
        what = "torch_exception_get_what_without_backtrace": unsafe extern "C" fn() -> *const c_char,
        new_generator = "torch_new_generator_handle": unsafe extern "C" fn(Handle, *mut Handle) -> i32,
        delete_generator = "torch_delete_generator": unsafe extern "C" fn(Handle) -> i32,
        // 2.14 and newer.
        tensor_from_pyobject = "torch_tensor_from_pyobject": unsafe extern "C" fn(*mut c_void, *mut Handle) -> i32,
        tensor_to_pyobject = "torch_tensor_to_pyobject":
            unsafe extern "C" fn(Handle, *mut c_void, *mut *mut c_void) -> i32,
        // Before: what pybind11 converts arguments with, and torch's own results.
        tensor_load = "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb":
            unsafe extern "C-unwind" fn(Handle, *mut c_void, bool) -> bool,
        tensor_wrap = "_Z16THPVariable_WrapRKN2at10TensorBaseE": unsafe extern "C-unwind" fn(Handle) -> *mut c_void,
        // at::fromDLPack(DLManagedTensor*, std::function<void(void*)>): makes a tensor without the GIL.
        from_dlpack = "_ZN2at10fromDLPackEP15DLManagedTensorSt8functionIFvPvEE":
            unsafe extern "C-unwind" fn(Handle, *mut c_void, *mut [usize; 4]) -> Handle,
        // c10::InferenceMode::is_enabled()
        inference_mode = "_ZN3c1013InferenceMode10is_enabledEv": unsafe extern "C" fn() -> bool,
        // at::globalContext(), at::Context::deterministicAlgorithms() const,
        // at::Context::deterministicFillUninitializedMemory() const
        global_context = "_ZN2at13globalContextEv": unsafe extern "C" fn() -> *const c_void,
        is_deterministic = "_ZNK2at7Context23deterministicAlgorithmsEv": unsafe extern "C" fn(*const c_void) -> bool,
        fills_memory = "_ZNK2at7Context36deterministicFillUninitializedMemoryEv":
            unsafe extern "C" fn(*const c_void) -> bool,
        // at::native::as_strided_tensorimpl(at::Tensor const&, IntArrayRef, IntArrayRef, std::optional<int64_t>)
        as_strided = "_ZN2at6native21as_strided_tensorimplERKNS_6TensorEN3c108ArrayRefIlEES6_St8optionalIlE":
            unsafe extern "C-unwind" fn(Handle, Handle, Numbers, Numbers, Maybe<i64>) -> Handle,
        // c10::Error::Error(c10::SourceLocation, std::string)
        error_new = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE":
            unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut CxxString),
        out_of_memory_type = "_ZTIN3c1016OutOfMemoryErrorE": *mut c_void,
        out_of_memory_vtable = "_ZTVN3c1016OutOfMemoryErrorE": *const usize,
        not_implemented_type = "_ZTIN3c1019NotImplementedErrorE": *mut c_void,
        not_implemented_vtable = "_ZTVN3c1019NotImplementedErrorE": *const usize,
        // c10::impl::device_guard_impl_registry
        guard_registry = "_ZN3c104impl26device_guard_impl_registryE": *const Handle,
        layout = "aoti_torch_get_layout": Get<i32>,
        // at::detail::getPrivateUse1Hooks()
        hooks = "_ZN2at6detail19getPrivateUse1HooksEv": unsafe extern "C-unwind" fn() -> *mut c_void,
        // c10::GeneratorImpl::GeneratorImpl(c10::Device, c10::DispatchKeySet)
        generator_construct = "_ZN3c1013GeneratorImplC1ENS_6DeviceENS_14DispatchKeySetE":
            unsafe extern "C-unwind" fn(*mut c_void, Device, u64),
        // at::detail::createCPUGenerator(unsigned long); at::CPUGeneratorImpl.
        cpu_generator_new = "_ZN2at6detail18createCPUGeneratorEm":
            unsafe extern "C-unwind" fn(*mut c_void, u64) -> *mut c_void,
        cpu_generator_vtable = "_ZTVN2at16CPUGeneratorImplE": *const usize,
        cpu_generator_clone = "_ZNK2at16CPUGeneratorImpl10clone_implEv":
            unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        cpu_generator_get_offset = "_ZNK2at16CPUGeneratorImpl10get_offsetEv": *const c_void,
        cpu_generator_set_offset = "_ZN2at16CPUGeneratorImpl10set_offsetEm": *const c_void,
        cpu_generator_random64 = "_ZN2at16CPUGeneratorImpl8random64Ev": unsafe extern "C-unwind" fn(*mut c_void) -> u64,
        // c10::GetCPUAllocator(), c10::Allocator::is_simple_data_ptr(c10::DataPtr const&) const
        cpu_allocator = "_ZN3c1015GetCPUAllocatorEv": unsafe extern "C-unwind" fn() -> *mut c_void,
        allocator_is_simple = "_ZNK3c109Allocator18is_simple_data_ptrERKNS_7DataPtrE": *const c_void,
        // libtorch exports no vtable of it; that of c10::Error serves.
        accelerator_type = "_ZTIN3c1016AcceleratorErrorE": *mut c_void,
        error_vtable = "_ZTVN3c105ErrorE": *const usize,
        index_type = "_ZTIN3c1010IndexErrorE": *mut c_void,
        index_vtable = "_ZTVN3c1010IndexErrorE": *const usize,
        type_type = "_ZTIN3c109TypeErrorE": *mut c_void,
        type_vtable = "_ZTVN3c109TypeErrorE": *const usize,
        value_type = "_ZTIN3c1010ValueErrorE": *mut c_void,
        value_vtable = "_ZTVN3c1010ValueErrorE": *const usize,
        // c10::get_default_dtype_as_scalartype()
        default_dtype = "_ZN3c1031get_default_dtype_as_scalartypeEv": unsafe extern "C" fn() -> i8,
        // torch::autograd::get_current_graph_task_id(): -1 outside of a backward pass.
        graph_task = "_ZN5torch8autograd25get_current_graph_task_idEv": unsafe extern "C" fn() -> i32,
        // at::native::resize_output_check(at::Tensor const&, IntArrayRef): warns where elements would be lost.
        resize_output_check = "_ZN2at6native19resize_output_checkERKNS_6TensorEN3c108ArrayRefIlEE":
            unsafe extern "C-unwind" fn(Handle, Numbers) -> bool,
        // at::autocast::cached_cast(c10::ScalarType, at::Tensor const&, c10::DeviceType), get_autocast_dtype(c10::DeviceType)
        cached_cast = "_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE":
            unsafe extern "C-unwind" fn(Handle, i8, Handle, i8) -> Handle,
        autocast_dtype = "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE": unsafe extern "C" fn(i8) -> i8,
        // c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey), tls_set_dispatch_key_excluded(c10::DispatchKey, bool)
        is_excluded = "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE": unsafe extern "C" fn(u16) -> bool,
        exclude = "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb": unsafe extern "C" fn(u16, bool),
        // at::native::_to_copy(at::Tensor const&, std::optional<...> of type, layout, device and pinned, bool, std::optional<c10::MemoryFormat>),
        // is_neg(at::Tensor const&)
        to_copy = "_ZN2at6native8_to_copyERKNS_6TensorESt8optionalIN3c1010ScalarTypeEES4_INS5_6LayoutEES4_INS5_6DeviceEES4_IbEbS4_INS5_12MemoryFormatEE": ToCopy,
        is_negated = "_ZN2at6native6is_negERKNS_6TensorE": unsafe extern "C" fn(Handle) -> bool,
        // c10::GradMode::is_enabled()
        takes_gradients = "_ZN3c108GradMode10is_enabledEv": unsafe extern "C" fn() -> bool,
        // at::_ops::NAME::call
        dispatch_to_copy = "_ZN2at4_ops8_to_copy4callERKNS_6TensorESt8optionalIN3c1010ScalarTypeEES5_INS6_6LayoutEES5_INS6_6DeviceEES5_IbEbS5_INS6_12MemoryFormatEE": ToCopy,
        conv1d = "_ZN2at4_ops6conv1d4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_SB_": Conv,
        conv2d = "_ZN2at4_ops6conv2d4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_SB_": Conv,
        conv3d = "_ZN2at4_ops6conv3d4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_SB_": Conv,
        conv_transpose1d = "_ZN2at4_ops16conv_transpose1d4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_SB_SC_":
            TransposedConv,
        conv_transpose2d = "_ZN2at4_ops22conv_transpose2d_input4callERKNS_6TensorES4_RKSt8optionalIS2_EN3c108ArrayRefINS9_6SymIntEEESC_SC_SB_SC_":
            TransposedConv,
        linear = "_ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E":
            unsafe extern "C-unwind" fn(Handle, Handle, Handle, *const MaybeTensor) -> Handle,
        matmul = "_ZN2at4_ops6matmul4callERKNS_6TensorES4_": Product,
        mm = "_ZN2at4_ops2mm4callERKNS_6TensorES4_": Product,
        bmm = "_ZN2at4_ops3bmm4callERKNS_6TensorES4_": Product,
        mv = "_ZN2at4_ops2mv4callERKNS_6TensorES4_": Product,
        attention = "_ZN2at4_ops28scaled_dot_product_attention4callERKNS_6TensorES4_S4_RKSt8optionalIS2_EdbS5_IdEb":
            unsafe extern "C-unwind" fn(
                Handle, Handle, Handle, Handle, *const MaybeTensor, f64, bool, Maybe<f64>, bool
            ) -> Handle,
        layer_norm = "_ZN2at4_ops10layer_norm4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEERKSt8optionalIS2_ESC_db":
            unsafe extern "C-unwind" fn(
                Handle, Handle, Numbers, *const MaybeTensor, *const MaybeTensor, f64, bool
            ) -> Handle,
        group_norm = "_ZN2at4_ops10group_norm4callERKNS_6TensorElRKSt8optionalIS2_ES8_db":
            unsafe extern "C-unwind" fn(
                Handle, Handle, i64, *const MaybeTensor, *const MaybeTensor, f64, bool
            ) -> Handle,
        softmax = "_ZN2at4_ops11softmax_int4callERKNS_6TensorElSt8optionalIN3c1010ScalarTypeEE": Softmax,
        log_softmax = "_ZN2at4_ops15log_softmax_int4callERKNS_6TensorElSt8optionalIN3c1010ScalarTypeEE": Softmax,
        exp = "_ZN2at4_ops3exp4callERKNS_6TensorE": Unary,
        expm1 = "_ZN2at4_ops5expm14callERKNS_6TensorE": Unary,
        log = "_ZN2at4_ops3log4callERKNS_6TensorE": Unary,
        log10 = "_ZN2at4_ops5log104callERKNS_6TensorE": Unary,
        log1p = "_ZN2at4_ops5log1p4callERKNS_6TensorE": Unary,
        log2 = "_ZN2at4_ops4log24callERKNS_6TensorE": Unary,
        reciprocal = "_ZN2at4_ops10reciprocal4callERKNS_6TensorE": Unary,
        rsqrt = "_ZN2at4_ops5rsqrt4callERKNS_6TensorE": Unary,
        prelu = "_ZN2at4_ops5prelu4callERKNS_6TensorES4_": Product,
        l1_loss = "_ZN2at4_ops7l1_loss4callERKNS_6TensorES4_l": Loss,
        mse_loss = "_ZN2at4_ops8mse_loss4callERKNS_6TensorES4_l": Loss,
        sum = "_ZN2at4_ops3sum4callERKNS_6TensorESt8optionalIN3c1010ScalarTypeEE":
            unsafe extern "C-unwind" fn(Handle, Handle, Maybe<i8>) -> Handle,
        sum_over = "_ZN2at4_ops15sum_dim_IntList4callERKNS_6TensorEN3c1016OptionalArrayRefIlEEbSt8optionalINS5_10ScalarTypeEE":
            unsafe extern "C-unwind" fn(Handle, Handle, Maybe<Numbers>, bool, Maybe<i8>) -> Handle,
        cumsum = "_ZN2at4_ops6cumsum4callERKNS_6TensorElSt8optionalIN3c1010ScalarTypeEE": Softmax,
        upsample_nearest2d = "_ZN2at4_ops18upsample_nearest2d4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEESt8optionalIdESA_":
            unsafe extern "C-unwind" fn(Handle, Handle, Numbers, Maybe<f64>, Maybe<f64>) -> Handle,
        upsample_bilinear2d = "_ZN2at4_ops19upsample_bilinear2d4callERKNS_6TensorEN3c108ArrayRefINS5_6SymIntEEEbSt8optionalIdESA_":
            unsafe extern "C-unwind" fn(Handle, Handle, Numbers, bool, Maybe<f64>, Maybe<f64>) -> Handle,
        concat = "_ZN2at4_ops6concat4callEN3c108ArrayRefINS_6TensorEEEl": Join,
        stack = "_ZN2at4_ops5stack4callEN3c108ArrayRefINS_6TensorEEEl": Join,
        // c10::Dispatcher::realSingleton(), findSchemaOrThrow(char const*, char const*)
        dispatcher = "_ZN3c1010Dispatcher13realSingletonEv": unsafe extern "C-unwind" fn() -> Handle,
        find_schema = "_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_":
            unsafe extern "C-unwind" fn(*mut Handle, Handle, *const c_char, *const c_char) -> *mut Handle,
        // c10::impl::OperatorEntry::getKernelForDispatchKey(c10::DispatchKey) const,
        // updateDispatchTable_(c10::Dispatcher const&, c10::DispatchKey)
        kernel_of = "_ZNK3c104impl13OperatorEntry23getKernelForDispatchKeyENS_11DispatchKeyE":
            unsafe extern "C-unwind" fn(Handle, u16) -> Handle,
        update_table = "_ZN3c104impl13OperatorEntry20updateDispatchTable_ERKNS_10DispatcherENS_11DispatchKeyE":
            unsafe extern "C-unwind" fn(Handle, Handle, u16),
        allocate_exception = "__cxa_allocate_exception": unsafe extern "C" fn(usize) -> *mut c_void,
        throw = "__cxa_throw": unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize),
    }
}

// SAFETY: plain function and data addresses of libraries that are never unloaded.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

/// `dlopen` flag: only what the process has loaded already. (Linux' and glibc's value.)
const RTLD_NOLOAD: c_int = libc::RTLD_NOLOAD;

static API: OnceLock<Api> = OnceLock::new();

/// Finds the functions in the process' libtorch.
///
/// # Errors
/// `NoTorch` where torch is not imported; `MissingSymbol` where it is too old.
pub fn load() -> Result<(), Error> {
    if API.get().is_some() {
        return Ok(());
    }
    let open = |name: &str| {
        // SAFETY: opens only what is loaded already, so no initialiser runs.
        unsafe { Library::open(Some(name), RTLD_NOW | RTLD_NOLOAD) }
    };
    let mut libraries = vec![open("libtorch_cpu.so").map_err(|_| Error::NoTorch)?];
    libraries.extend(
        ["libc10.so", "libstdc++.so.6", "libtorch_python.so"].iter().filter_map(|name| open(name).ok()),
    );
    let api = Api::load(&libraries)?;
    // Torch never unloads; neither may the handles that keep it.
    libraries.into_iter().for_each(std::mem::forget);
    API.get_or_init(|| api);
    Ok(())
}

/// The functions.
pub fn api() -> &'static Api {
    API.get().expect("the module's init loads the table before anything can call a kernel")
}

/// A test hides symbols, as if torch did not have them: WAVE32_TEST_WITHOUT=SYMBOL,... or `all`.
#[cfg(feature = "fault-injection")]
fn is_hidden(symbol: &str) -> bool {
    let hidden = std::env::var("WAVE32_TEST_WITHOUT").unwrap_or_default();
    hidden == "all" || hidden.split(',').any(|name| name == symbol)
}
#[cfg(not(feature = "fault-injection"))]
const fn is_hidden(_: &str) -> bool {
    false
}

/// # Safety
/// `T` is a pointer type, and the right one for that symbol.
unsafe fn find<T: Copy>(libraries: &[Library], name: &str) -> Option<T> {
    // SAFETY: by the caller.
    libraries.iter().find_map(|library| unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|s| *s))
}

/// Turns the shim's status into a result.
///
/// # Errors
/// `Torch` with libtorch's message where it tells one (2.13 and newer).
pub fn check(status: i32, call: &'static str) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let what = api().what.map(|what| {
        // SAFETY: libtorch gives a NUL-terminated thread-local string, copied at once.
        let text = unsafe { std::ffi::CStr::from_ptr(what()) };
        text.to_string_lossy().into_owned()
    });
    // The call may have run Python, whose Ctrl-C the shim has made a text.
    if what.as_ref().is_some_and(|text| text.starts_with("KeyboardInterrupt")) {
        interrupt();
    }
    Err(Error::Torch(match what.filter(|text| !text.is_empty()) {
        Some(text) => text,
        None => format!("{call} failed; libtorch wrote the reason to stderr"),
    }))
}
