//! [`HostRequest`]: a request to a hosted yard.

use frameyard::alloc::Wanted;
use frameyard::owners::Owners;
use frameyard::{AllocError, AllocRequest, Gfp, NodeId, Order, Pfn, PfnRange};

use super::HostYard;
use crate::mapped::frames::MappedFrames;
use crate::platform::HostPlatform;

/// A request that says more than order and flags ([`HostYard::request`]): an [`AllocRequest`] whose guard has bytes.
///
/// ```
/// use frameyard_host::{ByteSize, Gfp, HostYard, NodeId, Order};
///
/// let yard = HostYard::with_memory(ByteSize::mib(64))?;
/// let block = yard.request(Order(3), Gfp::KERNEL).node(NodeId(0)).zeroed().guard()?;
/// assert!(block.bytes().iter().all(|byte| *byte == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request allocates nothing before `guard`, `frame` or `range`"]
pub struct HostRequest<'y, 'o> {
    yard: &'y HostYard,
    request: AllocRequest<'y, 'o, HostPlatform>,
}

impl HostYard {
    /// A request for a block ([`Order`](frameyard::Order)), a number of contiguous frames
    /// ([`PageCount`](frameyard::PageCount)), or exactly the frames of a range. See
    /// [`Yard::request`](frameyard::Yard::request).
    #[inline(always)]
    pub fn request(&self, wanted: impl Into<Wanted>, gfp: Gfp) -> HostRequest<'_, '_> {
        HostRequest { yard: self, request: self.core().request(wanted, gfp) }
    }
}

impl<'y, 'o> HostRequest<'y, 'o> {
    /// As [`AllocRequest::node`].
    #[inline(always)]
    pub fn node(self, node: NodeId) -> Self {
        Self { request: self.request.node(node), ..self }
    }

    /// As [`AllocRequest::exact_node`].
    #[inline(always)]
    pub fn exact_node(self, node: NodeId) -> Self {
        Self { request: self.request.exact_node(node), ..self }
    }

    /// As [`AllocRequest::owners`].
    #[inline(always)]
    pub fn owners<'n>(self, owners: &'n Owners<'n>) -> HostRequest<'y, 'n> {
        HostRequest { yard: self.yard, request: self.request.owners(owners) }
    }

    /// As [`AllocRequest::aligned`].
    #[inline(always)]
    pub fn aligned(self, align: Order) -> Self {
        Self { request: self.request.aligned(align), ..self }
    }

    /// As [`AllocRequest::from_area`].
    #[inline(always)]
    pub fn from_area(self, area: PfnRange) -> Self {
        Self { request: self.request.from_area(area), ..self }
    }

    /// As [`AllocRequest::from_any_area`].
    #[inline(always)]
    pub fn from_any_area(self) -> Self {
        Self { request: self.request.from_any_area(), ..self }
    }

    /// As [`AllocRequest::zeroed`].
    #[inline(always)]
    pub fn zeroed(self) -> Self {
        Self { request: self.request.zeroed(), ..self }
    }

    /// Allocates, and returns a guard with the bytes of the frames, which frees them when it is dropped.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then. [`AllocError::NoFrameBytes`] for phantom frames.
    pub fn guard(self) -> Result<MappedFrames<&'y HostYard>, AllocError> {
        self.yard.with_bytes(self.request.guard()?)
    }

    /// Allocates, and returns the first frame ([`AllocRequest::frame`]).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn frame(self) -> Result<Pfn, AllocError> {
        self.request.frame()
    }

    /// Allocates, and returns the range of all frames ([`AllocRequest::range`]).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn range(self) -> Result<PfnRange, AllocError> {
        self.request.range()
    }
}
