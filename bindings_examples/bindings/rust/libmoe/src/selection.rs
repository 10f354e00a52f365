//! Which backend and kernel run a config, and why the others do not.

use crate::config::{Config, Platform};
use crate::context::{self, Context};
use crate::error::{create, owned_text, status, text, Error};
use libmoe_sys as sys;
use std::fmt;
use std::ptr;

handle! {
    /// The backend and kernel for a config on a machine, with the reason of every other candidate.
    Selection(moe_selection, moe_selection_destroy)
}

/// Why a candidate was refused. Not a Rust enum: a newer library may have reasons this crate does not know.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Reject(pub i32);

impl Reject {
    /// It was not: the candidate could run the config.
    pub const NONE: Reject = Reject(sys::MOE_REJECT_NONE);

    /// The constant's name, such as `MOE_REJECT_ISA`; `libmoe_sys` has them all.
    pub fn name(self) -> &'static str {
        unsafe { text(sys::moe_reject_name(self.0)) }
    }
}

impl fmt::Debug for Reject {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One considered kernel.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// For example "CPU_INT4", "MARLIN".
    pub backend: &'a str,
    /// For example "w4a8_tok8_p16_avx512vnni"; of devices that libmoe does not run: the experts class.
    pub kernel: &'a str,
    /// [`Reject::NONE`]: could run this config.
    pub reason: Reject,
    /// "needs avx512_vnni; the platform has .."; empty if accepted.
    pub detail: &'a str,
    /// A pointer into the resolved config, or a feature, or nothing.
    pub subject: &'a str,
    /// Smaller is tried earlier.
    pub priority: i32,
    /// The one that was taken.
    pub chosen: bool,
}

/// How to select.
#[derive(Clone, Copy, Default)]
pub struct SelectOptions<'a> {
    /// The machine; by default the config's, else this one.
    pub platform: Option<&'a Platform>,
    /// No error when no backend accepts: [`Selection::backend`] is then empty.
    pub explain_only: bool,
    /// The backend that the config names is a wish: else try others.
    pub allow_fallback: bool,
}

impl Selection {
    /// Asks all candidates; an error of [`crate::Status::NO_BACKEND`] lists them in its details.
    pub fn new(context: Option<&Context>, config: &Config) -> Result<Self, Error> {
        Self::with(context, config, SelectOptions::default())
    }

    /// The same, with options.
    pub fn with(context: Option<&Context>, config: &Config, options: SelectOptions) -> Result<Self, Error> {
        let mut flags = 0;
        if options.explain_only {
            flags |= sys::MOE_SELECT_EXPLAIN_ONLY;
        }
        if options.allow_fallback {
            flags |= sys::MOE_SELECT_ALLOW_FALLBACK;
        }
        let platform = options.platform.map_or(ptr::null_mut(), Platform::as_raw);
        create(|out, err| unsafe {
            sys::moe_select_backend(context::raw(context), config.as_raw(), platform, flags, out, err)
        })
        .map(Self)
    }

    /// The winner's backend.
    pub fn backend(&self) -> &str {
        unsafe { text(sys::moe_selection_backend(self.as_raw())) }
    }

    /// The winner's kernel.
    pub fn kernel(&self) -> &str {
        unsafe { text(sys::moe_selection_kernel(self.as_raw())) }
    }

    /// The packed layout. Converted weights run with any kernel of the same layout.
    pub fn layout(&self) -> &str {
        unsafe { text(sys::moe_selection_layout(self.as_raw())) }
    }

    /// All that were asked, in the order of their priority.
    pub fn candidates(&self) -> Result<Vec<Candidate<'_>>, Error> {
        let count = unsafe { sys::moe_selection_candidate_count(self.as_raw()) };
        (0..count).map(|i| self.candidate(i)).collect()
    }

    fn candidate(&self, index: usize) -> Result<Candidate<'_>, Error> {
        unsafe {
            let mut c: sys::moe_candidate = sys::sized();
            status(|err| sys::moe_selection_candidate(self.as_raw(), index, &mut c, err))?;
            Ok(Candidate {
                backend: text(c.backend),
                kernel: text(c.kernel),
                reason: Reject(c.reason),
                detail: text(c.detail),
                subject: text(c.subject),
                priority: c.priority,
                chosen: c.chosen != 0,
            })
        }
    }

    /// Bytes and alignment of the converted weights.
    pub fn packed_size(&self) -> Result<(u64, u64), Error> {
        let (mut bytes, mut alignment) = (0, 0);
        status(|err| unsafe { sys::moe_selection_packed_size(self.as_raw(), &mut bytes, &mut alignment, err) })?;
        Ok((bytes, alignment))
    }

    /// What was asked for and what runs, as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        owned_text(|out, err| unsafe { sys::moe_selection_to_json(self.as_raw(), out, err) })
    }
}
