//! What all handles have: they end with their value, and give their raw pointer to code that calls `libmoe-sys` itself.

/// Declares a handle. Every one is `Send` and `Sync`: the header allows all calls from any thread, also at once ([any]),
/// but for those marked [excl], which take `&mut self` or the value here.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ident, $destroy:ident)) => {
        $(#[$doc])*
        pub struct $name(pub(crate) std::ptr::NonNull<libmoe_sys::$raw>);

        impl $name {
            /// The raw handle, for calls of `libmoe-sys`. It stays this value's.
            pub fn as_raw(&self) -> *mut libmoe_sys::$raw {
                self.0.as_ptr()
            }

            /// The raw handle, which the caller must end from now on.
            pub fn into_raw(self) -> std::ptr::NonNull<libmoe_sys::$raw> {
                std::mem::ManuallyDrop::new(self).0
            }

            /// Takes a raw handle over.
            ///
            /// # Safety
            /// It must be a live handle of this kind, which no one else ends.
            pub unsafe fn from_raw(raw: std::ptr::NonNull<libmoe_sys::$raw>) -> Self {
                $name(raw)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { libmoe_sys::$destroy(self.0.as_ptr()) }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }

        unsafe impl Send for $name {}
        unsafe impl Sync for $name {}
    };
}

/// A value of the caller for a callback's `user`; [`release`] ends it.
pub(crate) fn into_user<T>(value: T) -> *mut std::os::raw::c_void {
    Box::into_raw(Box::new(value)).cast()
}

/// The `release` or `destroy` of such a value.
pub(crate) unsafe extern "C" fn release<T>(user: *mut std::os::raw::c_void) {
    let _ = crate::error::guarded("the drop of a value", || drop(Box::from_raw(user.cast::<T>())));
}
