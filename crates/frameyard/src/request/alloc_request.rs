//! [`AllocRequest`]: an allocation with more options than order and flags.

use core::fmt;

use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::platform::Platform;
use crate::request::Frames;
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange};
use crate::yard::{AllocError, RequestOption, Yard};

/// The frames that a [request](Yard::request) asks for. Made from an [`Order`], a [`PageCount`] or a [`PfnRange`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wanted {
    /// A naturally aligned block of `2^order` frames. [`Yard::free`] frees it.
    Block(Order),
    /// A number of contiguous frames, allocated as the largest aligned blocks that fit. [`Yard::free_range`] frees them.
    Count(PageCount),
    /// Exactly these frames, allocated as the largest aligned blocks that fit. [`Yard::free_range`] frees them.
    ///
    /// Without [owners](AllocRequest::owners), all of them must be free. Deferred memory in the range is initialised
    /// first. Watermarks do not apply.
    Range(PfnRange),
}

impl From<Order> for Wanted {
    #[inline(always)]
    fn from(order: Order) -> Self {
        Self::Block(order)
    }
}

impl From<PageCount> for Wanted {
    #[inline(always)]
    fn from(count: PageCount) -> Self {
        Self::Count(count)
    }
}

impl From<PfnRange> for Wanted {
    #[inline(always)]
    fn from(range: PfnRange) -> Self {
        Self::Range(range)
    }
}

/// The contiguous memory area that a request takes its frames from.
#[derive(Clone, Copy, Debug)]
enum Area {
    None,
    Any,
    Of(PfnRange),
}

/// A request for frames; see [`Yard::request`].
///
/// [`frame`](Self::frame), [`guard`](Self::guard) and [`range`](Self::range) carry it out. A request is a plain value
/// that can be kept and carried out several times.
///
/// # What is tried
///
/// | request | source of the frames | with [`owners`](Self::owners) |
/// |---|---|---|
/// | a block, or a count that fits in a maximum-order block | per-CPU lists and free lists, nearest zone first | a request that fails may compact and reclaim (`__alloc_pages_slowpath`) |
/// | a block above the maximum order, up to 1 GiB | the first place in address order, if it is free | blocks in use are moved away, and memory is reclaimed |
/// | the same, [`aligned`](Self::aligned) | the first place in address order | blocks in use are moved away (`alloc_contig_pages`) |
/// | a [range](Wanted::Range) | these frames | blocks in use are moved away (`alloc_contig_range`) |
/// | [`from_area`](Self::from_area), [`from_any_area`](Self::from_any_area) | a contiguous memory area | blocks in use are moved away (`cma_alloc`) |
///
/// Owners are called while no lock of the yard is held. The caller must not hold a lock that an owner takes.
///
/// # Cost
///
/// A request for a block without further options costs as much as [`Yard::alloc`]. At most call sites all options are
/// constants, so the compiler removes the choice between the cases.
#[must_use = "a request allocates nothing until `frame`, `guard` or `range` carries it out"]
pub struct AllocRequest<'y, 'o, P: Platform> {
    yard: &'y Yard<P>,
    wanted: Wanted,
    gfp: Gfp,
    node: Option<NodeId>,
    align: Option<Order>,
    area: Area,
    owners: Option<&'o Owners<'o>>,
}

impl<P: Platform> Clone for AllocRequest<'_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for AllocRequest<'_, '_, P> {}

impl<P: Platform> fmt::Debug for AllocRequest<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, gfp, node, align, area, .. } = self;
        let mut request = f.debug_struct("AllocRequest");
        request.field("wanted", wanted).field("gfp", gfp).field("node", node).field("align", align).field("area", area);
        request.finish_non_exhaustive()
    }
}

impl<P: Platform> Yard<P> {
    /// Allocates a block ([`Order`]), a number of contiguous frames ([`PageCount`]), or a range ([`PfnRange`]), and
    /// returns a guard that frees them when it is dropped. See [`alloc`](Self::alloc) and [`request`](Self::request).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn frames(&self, wanted: impl Into<Wanted>, gfp: Gfp) -> Result<Frames<'_, P>, AllocError> {
        let order = match wanted.into() {
            Wanted::Block(order) => order,
            wanted => return self.request(wanted, gfp).guard(),
        };
        // The first round of `owned`, because a closure around `alloc` would not be inlined and would return through memory.
        match self.own(PfnRange::new(self.alloc(order, gfp)?, order.pages())) {
            Some(frames) => Ok(frames),
            None => self.owned(|| Ok(PfnRange::new(self.alloc(order, gfp)?, order.pages()))),
        }
    }

    /// A request for a block ([`Order`]), a number of contiguous frames ([`PageCount`]), or a range of frames
    /// ([`PfnRange`]). [`AllocRequest`] has the options.
    #[inline(always)]
    pub fn request(&self, wanted: impl Into<Wanted>, gfp: Gfp) -> AllocRequest<'_, '_, P> {
        let wanted = wanted.into();
        AllocRequest { yard: self, wanted, gfp, node: None, align: None, area: Area::None, owners: None }
    }
}

impl<'y, 'o, P: Platform> AllocRequest<'y, 'o, P> {
    /// Prefers a node. By default the request prefers the node of the CPU that runs the caller.
    #[inline]
    pub fn node(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Takes frames from this node only ([`Gfp::THISNODE`]).
    #[inline]
    pub fn exact_node(self, node: NodeId) -> Self {
        Self { node: Some(node), gfp: self.gfp | Gfp::THISNODE, ..self }
    }

    /// Names the owners that may be asked to move blocks, and the reclaimer.
    ///
    /// A request for a block calls them only if its flags allow it to wait ([`Gfp::DIRECT_RECLAIM`]).
    #[inline]
    pub fn owners<'n>(self, owners: &'n Owners<'n>) -> AllocRequest<'y, 'n, P> {
        let Self { yard, wanted, gfp, node, align, area, .. } = self;
        AllocRequest { yard, wanted, gfp, node, align, area, owners: Some(owners) }
    }

    /// Searches memory in address order for a place whose first frame is a multiple of `2^align`.
    ///
    /// The place may be larger than a maximum-order block. For example, an order-18 block aligned to order 18 is a
    /// gigantic page of 1 GiB.
    #[inline]
    pub fn aligned(self, align: Order) -> Self {
        Self { align: Some(align), ..self }
    }

    /// Takes the frames from this contiguous memory area, one of [`Yard::cma`]'s.
    #[inline]
    pub fn from_area(self, area: PfnRange) -> Self {
        Self { area: Area::Of(area), ..self }
    }

    /// Takes the frames from the first contiguous memory area that can provide them.
    #[inline]
    pub fn from_any_area(self) -> Self {
        Self { area: Area::Any, ..self }
    }

    /// Zeroes the frames ([`Gfp::ZERO`]).
    ///
    /// On a platform that does not map the bytes of frames, the request fails with [`AllocError::NoFrameBytes`].
    #[inline]
    pub fn zeroed(self) -> Self {
        Self { gfp: self.gfp | Gfp::ZERO, ..self }
    }

    /// Allocates, and returns the first frame. [`Yard::free`] frees a block; [`Yard::free_range`] frees the frames of
    /// any other request.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline]
    pub fn frame(self) -> Result<Pfn, AllocError> {
        match (self.wanted, self.align, self.area) {
            (Wanted::Block(order), None, Area::None) => self.block(order),
            _ => Ok(self.contiguous()?.start),
        }
    }

    /// Allocates, and returns a guard that frees the frames when it is dropped.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn guard(self) -> Result<Frames<'y, P>, AllocError> {
        self.yard.owned(|| self.range())
    }

    /// Allocates, and returns the range of all frames. [`Yard::free_range`] frees them.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn range(self) -> Result<PfnRange, AllocError> {
        match (self.wanted, self.align, self.area) {
            (Wanted::Block(order), None, Area::None) => Ok(PfnRange::new(self.block(order)?, order.pages())),
            _ => self.contiguous(),
        }
    }

    /// Allocates a block from the per-CPU lists or the free lists.
    #[inline(always)]
    fn block(&self, order: Order) -> Result<Pfn, AllocError> {
        let Self { yard, gfp, node, .. } = *self;
        let alloc = |gfp| match node {
            None => yard.alloc(order, gfp),
            Some(node) => yard.alloc_on(node, order, gfp),
        };
        match self.owners {
            None => alloc(gfp),
            Some(owners) => yard.alloc_with(order, gfp, owners, alloc),
        }
    }

    /// Allocates anything but a block from the lists.
    #[inline(never)]
    fn contiguous(self) -> Result<PfnRange, AllocError> {
        let yard = self.yard;
        yard.refuse_damaged()?;
        self.find_contiguous().map_err(|error| yard.platform.lock_error().map_or(error, AllocError::Lock))
    }

    fn find_contiguous(self) -> Result<PfnRange, AllocError> {
        if let Some((one, other)) = self.conflict() {
            return Err(AllocError::Conflict(one, other));
        }
        let (yard, gfp) = (self.yard, self.gfp);
        let owners = self.owners.unwrap_or(&Owners::NONE);
        let (count, natural) = match self.wanted {
            Wanted::Range(range) => {
                return match self.owners {
                    None => yard.take_free_range(range, gfp),
                    Some(owners) => yard.empty_range(range, gfp, owners),
                };
            }
            Wanted::Block(order) if order.0 >= u64::BITS as u8 => {
                return Err(AllocError::OrderTooLarge { order, max: yard.geometry.largest_order() });
            }
            Wanted::Block(order) => (order.pages(), order),
            Wanted::Count(PageCount(0)) => return Err(AllocError::Empty),
            Wanted::Count(count) => (count, Order::ZERO),
        };
        let place = (count, self.align.unwrap_or(natural));
        match (self.area, self.align) {
            (Area::Any, _) => yard.alloc_from_area(None, place, gfp, owners),
            (Area::Of(area), _) => yard.alloc_from_area(Some(area), place, gfp, owners),
            (Area::None, Some(_)) => {
                let node = self.node.unwrap_or_else(|| yard.node_of_cpu(yard.cpu()));
                yard.search_contiguous(place, gfp, node, owners)
            }
            (Area::None, None) => yard.alloc_count(count, |order| self.block(order)),
        }
    }

    /// Two options of the request that exclude each other.
    fn conflict(&self) -> Option<(RequestOption, RequestOption)> {
        let given = |given: bool, option| given.then_some(option);
        let range = given(matches!(self.wanted, Wanted::Range(_)), RequestOption::Range);
        let area = given(!matches!(self.area, Area::None), RequestOption::Area);
        let node = given(self.node.is_some(), RequestOption::Node);
        let align = given(self.align.is_some(), RequestOption::Alignment);
        range.zip(area.or(node).or(align)).or(area.zip(node))
    }
}
