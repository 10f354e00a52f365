//! Callbacks: progress and cancellation, logs, thread pools, memory, weight sources; and what becomes of their panics.

mod common;
use common::*;
use libmoe::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Counts the values that are still there.
struct Alive(Arc<AtomicUsize>);
impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Alive(count.clone())
    }
}
impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn convert(control: &Control) -> Result<Packed, Error> {
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let options = ConvertOptions { control: Some(control), ..Default::default() };
    Packed::convert_with(None, &selection, &weights(&config), options)
}

#[test]
fn progress_is_told_and_cancels() {
    let alive = Arc::new(AtomicUsize::new(0));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let (seen, guard) = (reports.clone(), Alive::new(&alive));
    let control = Control::with_progress(move |done, total| {
        let _ = &guard;
        seen.lock().unwrap().push((done, total));
        ControlFlow::Continue(())
    })
    .unwrap();
    let packed = convert(&control).unwrap();
    let (done, total) = *reports.lock().unwrap().last().expect("no progress was told");
    assert_eq!((done, total), control.progress());
    assert!(done == total && total > 0);

    let folder = Folder::new("progress");
    packed.save(folder.0.join("x"), Some(&control)).unwrap();
    let options = LoadOptions { control: Some(&control), ..Default::default() };
    Packed::load(None, folder.0.join("x"), options).unwrap();
    control.report(3, 4).unwrap();
    assert_eq!((control.progress(), reports.lock().unwrap().last()), ((3, 4), Some(&(3, 4))));
    control.cancel();
    assert_eq!(convert(&control).unwrap_err().status(), Status::CANCELLED);
    assert_eq!(packed.save(folder.0.join("y"), Some(&control)).unwrap_err().status(), Status::CANCELLED);
    assert!(!folder.0.join("y").exists());
    assert_eq!(Packed::load(None, folder.0.join("x"), options).unwrap_err().status(), Status::CANCELLED);
    drop(control);
    assert_eq!(alive.load(SeqCst), 0, "the closure was not ended");

    let stop = Control::with_progress(|_, _| ControlFlow::Break(())).unwrap();
    assert_eq!(convert(&stop).unwrap_err().status(), Status::CANCELLED);
}

#[test]
fn a_call_is_cancelled_from_another_thread() {
    let layer = layer_of(None, &config());
    let control = Control::new().unwrap();
    let (x, scores, mut out) = (hidden(4), logits(4), hidden(4));
    let (x, scores) = (Tensor::new(&x, &[4, H]).unwrap(), Tensor::new(&scores, &[4, E]).unwrap());
    let mut out = TensorMut::new(&mut out, &[4, H]).unwrap();
    let mut run = || {
        let mut options = ApplyOptions { control: Some(&control), ..Default::default() };
        layer.apply_with(&x, Routing::Logits(&scores), &mut out, &mut options)
    };
    run().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| control.cancel());
        while run().is_ok() {}
        assert_eq!(run().unwrap_err().status(), Status::CANCELLED);
    });
}

#[test]
fn messages_reach_the_log_and_the_ring() {
    let (alive, lines) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (seen, guard) = (lines.clone(), Alive::new(&alive));
    let context = Context::builder(r#"{"log_level":"trace"}"#)
        .log(move |level, component, message| {
            let _ = &guard;
            seen.lock().unwrap().push((level, component.to_string(), message.to_string()));
        })
        .create()
        .unwrap();
    let layer = layer_of(Some(&context), &config());
    let seen = lines.lock().unwrap().clone();
    assert!(seen
        .iter()
        .any(|(level, component, message)| *level <= LogLevel::INFO && !component.is_empty() && !message.is_empty()));
    let ring = context.take_log().unwrap();
    assert_eq!(ring.lines().count(), seen.len());
    assert_eq!(context.take_log().unwrap(), "");
    assert!(context.to_json().unwrap().contains("threads"));
    drop(context);
    assert_eq!(alive.load(SeqCst), 1, "the layer keeps its context");
    drop(layer);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn tasks_run_on_the_callers_threads() {
    let expected = apply(&layer_of(None, &config()), 9);
    let loops = Arc::new(AtomicUsize::new(0));
    let count = loops.clone();
    let context = Context::builder("{}")
        .parallel_for(3, move |tasks| {
            count.fetch_add(1, SeqCst);
            std::thread::scope(|scope| {
                for i in 0..tasks.count() {
                    scope.spawn(move || tasks.run(i));
                }
            });
            tasks.run(0); // again: nothing happens
        })
        .create()
        .unwrap();
    assert_eq!(apply(&layer_of(Some(&context), &config()), 9), expected);
    assert!(loops.load(SeqCst) > 0);
}

#[test]
fn tasks_that_are_left_out_or_not_there_are_errors() {
    for fault in ["none", "first only", "outside"] {
        let context = Context::builder("{}")
            .parallel_for(2, move |tasks| match fault {
                "none" => {}
                "first only" => tasks.run(0),
                _ => (0..=tasks.count()).for_each(|i| tasks.run(i)),
            })
            .create()
            .unwrap();
        let config = config();
        let selection = Selection::new(None, &config).unwrap();
        let error = Packed::convert(Some(&context), &selection, &weights(&config)).unwrap_err();
        assert_eq!(error.status(), Status::CALLBACK, "{fault}");
        assert!(error.to_string().contains("parallel_for"), "{error}");
    }
}

/// Memory of the standard library, counted; gives none above a limit.
struct Counted {
    live: Arc<AtomicUsize>,
    limit: usize,
}
unsafe impl Allocator for Counted {
    fn allocate(&self, size: usize, alignment: usize, _: i32) -> *mut u8 {
        if size > self.limit {
            return std::ptr::null_mut();
        }
        self.live.fetch_add(1, SeqCst);
        unsafe { std::alloc::alloc(std::alloc::Layout::from_size_align(size.max(1), alignment).unwrap()) }
    }
    unsafe fn deallocate(&self, pointer: *mut u8, size: usize, alignment: usize) {
        self.live.fetch_sub(1, SeqCst);
        std::alloc::dealloc(pointer, std::alloc::Layout::from_size_align(size.max(1), alignment).unwrap());
    }
}

#[test]
fn memory_comes_from_the_callers_allocator() {
    let live = Arc::new(AtomicUsize::new(0));
    let context = |limit| Context::builder("{}").allocator(Counted { live: live.clone(), limit }).create().unwrap();
    let layer = layer_of(Some(&context(usize::MAX)), &config());
    apply(&layer, 3);
    assert!(live.load(SeqCst) > 0);
    drop(layer);
    assert_eq!(live.load(SeqCst), 0);

    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let error = Packed::convert(Some(&context(0)), &selection, &weights(&config)).unwrap_err();
    assert_eq!(error.status(), Status::OUT_OF_MEMORY);
}

/// Gives one expert's tensors, counts them while they are used, fails where it is told to.
struct Source {
    alive: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    fault: &'static str,
}
struct Held(Vec<u8>, #[allow(dead_code)] Alive);
impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl WeightSource for Source {
    fn get(&self, role: &str, expert: i64, shard: Option<&str>) -> Result<Option<OwnedTensor>, Error> {
        self.asked.fetch_add(1, SeqCst);
        match self.fault {
            "panic" => panic!("no expert {expert} on this disk"),
            "error" => return Err(Error::new(Status::IO, "the disk é is gone")),
            "cancel" => return Err(Error::new(Status::CANCELLED, "enough")),
            "shape" => return Ok(Some(OwnedTensor::new(vec![0i8; 3], &[3])?)),
            _ if shard.is_some() || !ROLES.contains(&role) => return Ok(None),
            _ => {}
        }
        let whole = tensor(role, expert, expert + 1);
        let bytes = whole.view().as_bytes().unwrap().to_vec();
        OwnedTensor::from_bytes(whole.dtype(), Held(bytes, Alive::new(&self.alive)), whole.shape()).map(Some)
    }
}

#[test]
fn a_source_gives_weights_while_conversion_runs() {
    let (alive, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let source = |fault| {
        let source = Source { alive: alive.clone(), asked: asked.clone(), fault };
        Weights::from_source(&config, source).unwrap()
    };
    let expected = packed().1;
    let context = Context::new(r#"{"threads":3}"#).unwrap();
    let converted = Packed::convert(Some(&context), &selection, &source("")).unwrap();
    assert_eq!(converted.data().unwrap(), expected.data().unwrap());
    assert!(asked.load(SeqCst) >= 16);
    assert_eq!(alive.load(SeqCst), 0, "a tensor was not given back");

    for (fault, status, says) in [
        ("panic", Status::CALLBACK, "no expert"),
        ("error", Status::CALLBACK, "the disk é is gone"),
        ("cancel", Status::CANCELLED, "enough"),
        ("shape", Status::SHAPE, "[3]"),
    ] {
        let error = Packed::convert(None, &selection, &source(fault)).unwrap_err();
        assert_eq!(error.status(), status, "{fault}: {error}");
        assert!(error.to_string().contains(says), "{fault}: {error}");
        assert_eq!(alive.load(SeqCst), 0);
    }
    let mut fixed = source("");
    assert!(fixed.set("w2_weight", tensor("w2_weight", 0, E)).is_err(), "a source has no places to set");
}

#[test]
fn panics_become_errors() {
    let told = Control::with_progress(|_, _| panic!("progress {}", 7)).unwrap();
    let error = convert(&told).unwrap_err();
    assert_eq!(error.status(), Status::CALLBACK);
    assert!(error.message().contains("the progress function panicked: progress 7"), "{error}");

    let config = config();
    let selection = Selection::new(None, &config).unwrap();
    let context = Context::builder("{}").parallel_for(2, |_| panic!("the pool is closed")).create().unwrap();
    let error = Packed::convert(Some(&context), &selection, &weights(&config)).unwrap_err();
    assert_eq!(error.status(), Status::CALLBACK);
    assert!(error.message().contains("parallel_for panicked: the pool is closed"), "{error}");

    // no call to fail: the lines are lost, the results are not
    let context = Context::builder(r#"{"log_level":"trace"}"#).log(|_, _, _| panic!("the log")).create().unwrap();
    assert_eq!(apply(&layer_of(Some(&context), &config), 2), apply(&layer_of(None, &config), 2));

    struct Bomb;
    impl AsRef<[i8]> for Bomb {
        fn as_ref(&self) -> &[i8] {
            &[0; (E * H * I) as usize]
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let mut weights = Weights::new(&config).unwrap();
    weights.set("w2_weight", OwnedTensor::new(Bomb, &[E, H, I]).unwrap()).unwrap();
    drop(weights);
}
