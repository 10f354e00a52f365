//! DLPack in and out, with and without a version.

mod common;
use common::*;
use libmoe::dlpack::*;
use libmoe::*;
use std::cell::Cell;
use std::os::raw::c_void;
use std::ptr::NonNull;

const TYPES: [&str; 25] = [
    "f32",
    "f16",
    "bf16",
    "f64",
    "i8",
    "u8",
    "i16",
    "u16",
    "i32",
    "u32",
    "i64",
    "u64",
    "bool",
    "f8_e4m3fn",
    "f8_e5m2",
    "f8_e4m3fnuz",
    "f8_e5m2fnuz",
    "f8_e8m0fnu",
    "f6_e2m3fn",
    "f6_e3m2fn",
    "f4_e2m1fn",
    "i4",
    "u4",
    "i2",
    "u2",
];

#[test]
fn every_type_goes_out_and_comes_back() {
    for name in TYPES {
        let dtype = DType::from_name(name).unwrap();
        assert_eq!(dtype.name(), name);
        let shape = [3, 8];
        let bytes: Vec<u8> = (0..dtype.bytes(&shape).unwrap() as u8).collect();
        let tensor = || OwnedTensor::from_bytes(dtype, bytes.clone(), &shape).unwrap();
        let with = tensor().into_dlpack().unwrap();
        let without = tensor().into_dlpack_unversioned().unwrap();
        unsafe {
            assert_eq!((with.as_ref().major, with.as_ref().flags), (1, READ_ONLY));
            for back in [OwnedTensor::from_dlpack(with), OwnedTensor::from_dlpack_unversioned(without)] {
                let back = back.unwrap();
                assert_eq!((back.dtype(), back.shape()), (dtype, &shape[..]));
                assert_eq!(back.view().as_bytes().unwrap(), bytes);
            }
        }
    }
}

thread_local!(static DELETED: Cell<usize> = const { Cell::new(0) }); // tests run at once, each on its own thread

/// A tensor of another framework: `f32 [2, 2]` with rows of 3.
struct Theirs {
    managed: DlManagedTensorVersioned,
    shape: [i64; 2],
    strides: [i64; 2],
    data: [f32; 6],
}

fn theirs(change: impl FnOnce(&mut Theirs)) -> NonNull<DlManagedTensorVersioned> {
    unsafe extern "C" fn delete(this: *mut DlManagedTensorVersioned) {
        DELETED.with(|count| count.set(count.get() + 1));
        drop(Box::from_raw((*this).manager.cast::<Theirs>()));
    }
    let tensor = DlTensor {
        data: std::ptr::null_mut(),
        device_type: 1,
        device_id: 0,
        ndim: 2,
        code: 2,
        bits: 32,
        lanes: 1,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DlManagedTensorVersioned {
        major: 1,
        minor: 0,
        manager: std::ptr::null_mut(),
        deleter: Some(delete),
        flags: 0,
        tensor,
    };
    let data = [0.0, 1.0, -1.0, 2.0, 3.0, -1.0];
    let all = Box::leak(Box::new(Theirs { managed, shape: [2, 2], strides: [3, 1], data }));
    let start: *mut Theirs = all;
    all.managed.manager = start.cast();
    all.managed.tensor.data = all.data.as_mut_ptr().cast::<c_void>();
    all.managed.tensor.shape = all.shape.as_mut_ptr();
    all.managed.tensor.strides = all.strides.as_mut_ptr();
    change(all);
    NonNull::from(&mut all.managed)
}

#[test]
fn a_foreign_tensor_is_ended_once_by_its_own_deleter() {
    let before = DELETED.with(Cell::get);
    let tensor = unsafe { OwnedTensor::from_dlpack(theirs(|_| {})) }.unwrap();
    assert_eq!(tensor.shape(), [2, 2]);
    assert!(tensor.view().as_bytes().is_none(), "there is a gap");
    assert_eq!(DELETED.with(Cell::get), before);
    let mut weights = Weights::new(&config()).unwrap();
    assert!(weights.set("w2_weight", tensor).is_err()); // released although the call failed
    assert_eq!(DELETED.with(Cell::get), before + 1);

    for (fault, change) in [
        ("version", Box::new(|t: &mut Theirs| t.managed.major = 2) as Box<dyn Fn(&mut Theirs)>),
        ("device", Box::new(|t: &mut Theirs| t.managed.tensor.device_type = 2)),
        ("type", Box::new(|t: &mut Theirs| t.managed.tensor.bits = 31)),
        ("rank", Box::new(|t: &mut Theirs| t.managed.tensor.ndim = 7)),
        (
            "shape",
            Box::new(|t: &mut Theirs| (t.shape, t.managed.tensor.bits, t.managed.tensor.code) = ([2, i64::MAX], 4, 0)),
        ),
        ("negative", Box::new(|t: &mut Theirs| t.shape = [-1, 2])),
    ] {
        let managed = theirs(change);
        let error =
            unsafe { OwnedTensor::from_dlpack(managed) }.err().unwrap_or_else(|| panic!("{fault} was accepted"));
        assert_eq!(error.subject(), "dl_managed_tensor_versioned", "{fault}");
        let deleted = DELETED.with(Cell::get);
        unsafe { managed.as_ref().deleter.unwrap()(managed.as_ptr()) } // still the caller's
        assert_eq!(DELETED.with(Cell::get), deleted + 1);
    }
}

#[test]
fn outputs_go_into_foreign_memory_unless_it_is_read_only() {
    let config = config();
    let (scores, mut ids) = (logits(2), vec![0i32; 4]);
    let scores = Tensor::new(&scores, &[2, E]).unwrap();
    let mut ids = TensorMut::new(&mut ids, &[2, K]).unwrap();
    let managed = theirs(|_| {});
    let mut out = unsafe { TensorMut::from_dlpack(managed) }.unwrap();
    config.route(None, &scores, None, &mut ids, &mut out).unwrap();
    let data = unsafe { &(*managed.as_ref().manager.cast::<Theirs>()).data };
    assert!(data[0] > 0.0 && (data[0] + data[1] - 1.0).abs() < 1e-6 && data[2] == -1.0 && data[5] == -1.0);
    unsafe { managed.as_ref().deleter.unwrap()(managed.as_ptr()) }

    let read_only = theirs(|t| t.managed.flags = READ_ONLY);
    let error = unsafe { TensorMut::from_dlpack(read_only) }.expect_err("read-only memory would be written to");
    assert!(error.message().contains("read-only"));
    unsafe { read_only.as_ref().deleter.unwrap()(read_only.as_ptr()) }
}

#[test]
fn rows_of_half_bytes_do_not_go_out() {
    let dtype = DType::from_name("i4").unwrap();
    let tensor = || OwnedTensor::from_bytes(dtype, vec![0u8; 4], &[2, 3]).unwrap();
    assert_eq!(tensor().into_dlpack().unwrap_err().status(), Status::SHAPE);
    assert_eq!(tensor().into_dlpack_unversioned().unwrap_err().status(), Status::SHAPE);
}
