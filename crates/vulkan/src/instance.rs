//! The Vulkan loader and instance, and the validation layer's messages.

use crate::error::at;
use ash::{ext, khr, vk};
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use wave32_device::DeviceError;

const VALIDATION_LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// What the validation layer said, shared with its callback.
pub(crate) type Messages = Arc<Mutex<Vec<String>>>;

/// A live instance; destroyed when dropped.
pub(crate) struct Instance {
    // Keeps libvulkan loaded for as long as the function pointers below may be called.
    _entry: ash::Entry,
    pub(crate) raw: ash::Instance,
    /// The version asked for, which devices may exceed but we never use beyond.
    pub(crate) api: u32,
    messenger: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    pub(crate) messages: Messages,
}

/// Loads libvulkan, which is not linked: a machine without it gets an error, not a dead program.
fn load() -> Result<ash::Entry, DeviceError> {
    // SAFETY: libvulkan's initialisers are those of the system's own loader; nothing else is loaded.
    unsafe { ash::Entry::load() }.map_err(|error| {
        let how = if cfg!(windows) {
            "the graphics card's driver, which has it"
        } else {
            "it (Debian, Ubuntu: `apt install libvulkan1 mesa-vulkan-drivers`; Fedora: `dnf install vulkan-loader \
             mesa-vulkan-drivers`)"
        };
        DeviceError::Unavailable(format!("the Vulkan loader is missing ({error}); install {how}"))
    })
}

/// True where the Khronos validation layer is installed, so that [`crate::Options::validation`] works.
pub fn validation_available() -> bool {
    load().is_ok_and(|entry| has_layer(&entry))
}

fn has_layer(entry: &ash::Entry) -> bool {
    // SAFETY: a global query without arguments.
    let layers = unsafe { entry.enumerate_instance_layer_properties() }.unwrap_or_default();
    layers.iter().any(|layer| layer.layer_name_as_c_str() == Ok(VALIDATION_LAYER))
}

impl Instance {
    /// Creates an instance, with the validation layer where asked for.
    pub(crate) fn new(validation: bool) -> Result<Self, DeviceError> {
        let entry = load()?;
        // SAFETY: a global query without arguments.
        let loader = unsafe { entry.try_enumerate_instance_version() }
            .map_err(at("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if loader < vk::API_VERSION_1_2 {
            return Err(DeviceError::Unavailable(format!(
                "the Vulkan loader is version {}, too old; 1.2 or newer is needed: update libvulkan",
                version_text(loader)
            )));
        }
        if validation && !has_layer(&entry) {
            return Err(DeviceError::Unavailable(
                "the Vulkan validation layer is missing; install `vulkan-validationlayers` or open without it".into(),
            ));
        }
        let api = loader.min(vk::API_VERSION_1_3);
        let application = vk::ApplicationInfo::default()
            .application_name(c"wave32")
            .engine_name(c"wave32")
            .api_version(api);
        let layers = [VALIDATION_LAYER.as_ptr()];
        let extensions = [ext::debug_utils::NAME.as_ptr()];
        let mut info = vk::InstanceCreateInfo::default().application_info(&application);
        if validation {
            info = info.enabled_layer_names(&layers).enabled_extension_names(&extensions);
        }
        // SAFETY: `info` and all it points to live until the call returns.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(at("vkCreateInstance"))?;
        let mut instance = Self { _entry: entry, raw, api, messenger: None, messages: Messages::default() };
        if validation {
            instance.listen()?;
        }
        Ok(instance)
    }

    /// Whether subgroups of a device, which lists `VK_KHR_cooperative_matrix`, multiply 16x16x16 matrices of f16 with sums in f32.
    pub(crate) fn multiplies_float16(&self, physical: vk::PhysicalDevice) -> bool {
        let matrices = khr::cooperative_matrix::Instance::new(&self._entry, &self.raw);
        // SAFETY: the device is of this instance and lists the extension.
        let kinds = unsafe { matrices.get_physical_device_cooperative_matrix_properties(physical) };
        let (half, full) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
        kinds.unwrap_or_default().iter().any(|kind| {
            [kind.m_size, kind.n_size, kind.k_size] == [16; 3]
                && [kind.a_type, kind.b_type] == [half; 2]
                && [kind.c_type, kind.result_type] == [full; 2]
                && kind.scope == vk::ScopeKHR::SUBGROUP
        })
    }

    /// Collects what the validation layer says.
    fn listen(&mut self) -> Result<(), DeviceError> {
        let utils = ext::debug_utils::Instance::new(&self._entry, &self.raw);
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::WARNING | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
            )
            .message_type(
                vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
                    | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE,
            )
            .pfn_user_callback(Some(on_message))
            .user_data(Arc::as_ptr(&self.messages).cast_mut().cast());
        // SAFETY: the user data is the mutex inside `self.messages`, an Arc that the instance holds until
        // after the messenger is destroyed; the callback only takes shared references to it.
        let messenger = unsafe { utils.create_debug_utils_messenger(&info, None) }
            .map_err(at("vkCreateDebugUtilsMessengerEXT"))?;
        self.messenger = Some((utils, messenger));
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handles were made by this instance, nothing uses them later: everything made from
        // the instance is owned by structs that are dropped, or leaked together with it, before it.
        unsafe {
            if let Some((utils, messenger)) = self.messenger.take() {
                utils.destroy_debug_utils_messenger(messenger, None);
            }
            self.raw.destroy_instance(None);
        }
    }
}

unsafe extern "system" fn on_message(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the driver passes a valid structure (or, defensively, null), whose message is null or a C
    // string, for the time of the call; `user` is what `Instance::listen` registered and still lives.
    unsafe {
        let messages = &*user.cast_const().cast::<Mutex<Vec<String>>>();
        if let Some(text) = data.as_ref().and_then(|data| data.message_as_c_str()) {
            let text = text.to_string_lossy().into_owned();
            log::error!("Vulkan validation: {text}");
            messages.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }
    vk::FALSE
}

/// `1.3.230` of a packed version.
pub(crate) fn version_text(version: u32) -> String {
    format!(
        "{}.{}.{}",
        vk::api_version_major(version),
        vk::api_version_minor(version),
        vk::api_version_patch(version)
    )
}
