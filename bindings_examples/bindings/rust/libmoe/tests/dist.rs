//! A layer over several ranks, which are threads: outputs of one process, errors, transports written in Rust.

mod common;
use common::*;
use libmoe::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Runs each rank on a thread of its own; what they return, by rank.
fn on_ranks<T: Send>(comms: Vec<Comm>, run: impl Fn(usize, Comm) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let ranks: Vec<_> = comms
            .into_iter()
            .map(|mut comm| {
                comm.set_options(r#"{"timeout_ms":60000}"#).unwrap();
                scope.spawn(move || run(comm.rank(), comm))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The small layer, with this rank's part attached.
fn spread(comm: &mut Comm, options: &str) -> Dist {
    let mut dist = Dist::new(None, comm, &config(), options).unwrap();
    let told = dist.to_json().unwrap();
    let experts = told.split("\"experts\":[").nth(1).unwrap().split(']').next().unwrap();
    if experts.is_empty() {
        assert_eq!(dist.local_config().unwrap_err().status(), Status::STATE);
        dist.attach(None).unwrap();
        return dist;
    }
    let local = dist.local_config().unwrap();
    let (selection, mut weights) = (Selection::new(None, &local).unwrap(), Weights::new(&local).unwrap());
    for expert in experts.split(',').map(|expert| expert.parse().unwrap()) {
        for role in ROLES {
            weights.set_expert(role, expert, None, tensor(role, expert, expert + 1)).unwrap();
        }
    }
    let packed = Packed::convert(None, &selection, &weights).unwrap();
    dist.attach(Some(&Layer::new(None, &selection, &packed).unwrap())).unwrap(); // kept there
    dist
}

/// Tokens first..first + count of a batch of `all`, and room for their outputs.
struct Part {
    count: i64,
    hidden: Vec<f32>,
    logits: Vec<f32>,
    out: Vec<f32>,
}

impl Part {
    fn new(all: i64, first: i64, count: i64) -> Self {
        let cut = |values: Vec<f32>, width: i64| {
            values[(first * width) as usize..((first + count) * width) as usize].to_vec()
        };
        let out = vec![f32::NAN; (count * H) as usize];
        Part { count, hidden: cut(hidden(all), H), logits: cut(logits(all), E), out }
    }

    fn run<T>(&mut self, call: impl FnOnce(&Tensor, Routing, &mut TensorMut) -> T) -> T {
        let hidden = Tensor::new(&self.hidden, &[self.count, H]).unwrap();
        let logits = Tensor::new(&self.logits, &[self.count, E]).unwrap();
        call(&hidden, Routing::Logits(&logits), &mut TensorMut::new(&mut self.out, &[self.count, H]).unwrap())
    }

    fn apply(&mut self, dist: &mut Dist) -> Result<(), Error> {
        self.run(|hidden, routing, out| dist.apply(hidden, routing, out))
    }

    /// Logits of one expert too few.
    fn apply_wrong(&mut self, dist: &mut Dist) -> Result<(), Error> {
        let narrow = vec![0f32; (self.count * (E - 1)) as usize];
        let narrow = Tensor::new(&narrow, &[self.count, E - 1]).unwrap();
        self.run(|hidden, _, out| dist.apply(hidden, Routing::Logits(&narrow), out))
    }
}

/// The outputs of all ranks one after another; rank r has `counts[r]` tokens.
fn outputs(comms: Vec<Comm>, counts: &[i64], options: &str) -> Vec<f32> {
    let all = counts.iter().sum();
    let parts = on_ranks(comms, |rank, mut comm| {
        assert_eq!((comm.size(), rank), (counts.len(), comm.rank()));
        let mut dist = spread(&mut comm, options);
        drop(comm); // the layer keeps it
        let mut part = Part::new(all, counts[..rank].iter().sum(), counts[rank]);
        part.apply(&mut dist).unwrap();
        part.out
    });
    parts.concat()
}

const COUNTS: [&[i64]; 8] = [&[9], &[0], &[4, 5], &[0, 9], &[3, 3, 3], &[1, 8, 0], &[0, 0, 0], &[2, 0, 3, 1, 3]];

#[test]
fn ranks_give_the_bits_of_one_process() {
    let layer = layer_of(None, &config());
    for counts in COUNTS {
        for options in ["{}", r#"{"chunk_tokens":2}"#, r#"{"placement":"round_robin"}"#] {
            let expected = apply(&layer, counts.iter().sum());
            assert_eq!(
                outputs(Comm::threads(counts.len()).unwrap(), counts, options),
                expected,
                "{counts:?} {options}"
            );
        }
    }
}

#[test]
fn a_call_goes_in_steps() {
    let expected = apply(&layer_of(None, &config()), 12);
    let parts = on_ranks(Comm::threads(3).unwrap(), |rank, mut comm| {
        let mut dist = spread(&mut comm, r#"{"chunk_tokens":3}"#);
        let mut other = spread(&mut comm, r#"{"layer_id":1}"#);
        let (mut part, mut second) = (Part::new(12, 4 * rank as i64, 4), Part::new(1, 0, 1));
        part.run(|hidden, routing, out| {
            let mut options = ApplyOptions::default();
            let mut call = dist.begin(hidden, routing, out, &mut options).unwrap();
            assert_eq!(second.apply(&mut other).unwrap_err().status(), Status::BUSY);
            assert_eq!(comm.set_options("{}").unwrap_err().status(), Status::BUSY);
            while !call.poll().unwrap() {
                std::thread::yield_now();
            }
            assert!(call.poll().unwrap());
            call.finish().unwrap();
        });
        second.apply(&mut other).unwrap();
        assert!(dist.to_json().unwrap().contains(r#""calls":1"#));
        part.out
    });
    assert_eq!(parts.concat(), expected);
}

#[test]
fn options_of_a_call_count() {
    let layer = layer_of(None, &config());
    let (expected, mut added) = (apply(&layer, 4), Part::new(4, 0, 4));
    added.out.fill(1.0);
    let mut add = ApplyOptions { accumulate: true, ..Default::default() };
    added.run(|hidden, routing, out| layer.apply_with(hidden, routing, out, &mut add)).unwrap();
    on_ranks(Comm::threads(2).unwrap(), |rank, mut comm| {
        let mut dist = spread(&mut comm, "{}");
        let mut part = Part::new(4, 2 * rank as i64, 2);
        part.out.fill(1.0);
        let (mut ids, mut weights) = (vec![-7i32; (2 * K) as usize], vec![f32::NAN; (2 * K) as usize]);
        let control = Control::new().unwrap();
        let mut options = ApplyOptions {
            accumulate: true,
            control: Some(&control),
            chosen_ids: Some(TensorMut::new(&mut ids, &[2, K]).unwrap()),
            chosen_weights: Some(TensorMut::new(&mut weights, &[2, K]).unwrap()),
            ..Default::default()
        };
        part.run(|hidden, routing, out| dist.apply_with(hidden, routing, out, &mut options)).unwrap();
        assert!(ids.iter().all(|id| (0..E as i32).contains(id)) && weights.iter().all(|weight| weight.is_finite()));
        let mine = rank * part.out.len()..(rank + 1) * part.out.len();
        assert_eq!(part.out, added.out[mine.clone()]);
        let mine = &expected[mine];
        // ids and weights given
        let (ids, weights) = (Tensor::new(&ids, &[2, K]).unwrap(), Tensor::new(&weights, &[2, K]).unwrap());
        part.run(|hidden, _, out| dist.apply(hidden, Routing::TopK { ids: &ids, weights: &weights }, out)).unwrap();
        assert_eq!(part.out, mine);

        control.cancel();
        let mut options = ApplyOptions { control: Some(&control), ..Default::default() };
        let cancelled = part.run(|hidden, routing, out| dist.apply_with(hidden, routing, out, &mut options));
        assert_eq!(cancelled.unwrap_err().status(), Status::CANCELLED);
        let mut memory = Buffer::new(1 << 16, 64).unwrap();
        let mut options = ApplyOptions { workspace: Some(&mut memory), ..Default::default() };
        let refused = part.run(|hidden, routing, out| dist.apply_with(hidden, routing, out, &mut options));
        assert_eq!(refused.unwrap_err().subject(), "workspace");
        part.apply(&mut dist).unwrap();
        assert_eq!(part.out, mine);
    });
}

#[test]
fn what_is_wrong_on_one_rank_is_told_to_the_others() {
    let expected = apply(&layer_of(None, &config()), 6);
    let parts = on_ranks(Comm::threads(3).unwrap(), |rank, mut comm| {
        let faulty = if rank == 1 { r#"{"mode":"pp"}"# } else { "{}" };
        let error = Dist::new(None, &mut comm, &config(), faulty).unwrap_err();
        assert_eq!(error.status(), if rank == 1 { Status::INVALID_CONFIG } else { Status::PEER }, "{error}");
        let differs = format!(r#"{{"layer_id":{}}}"#, rank / 2);
        let error = Dist::new(None, &mut comm, &config(), &differs).unwrap_err();
        assert_eq!(error.status(), Status::CONFIG_MISMATCH, "{error}");
        assert!(error.details().contains("layer_id"), "{}", error.details());

        let mut dist = spread(&mut comm, "{}");
        let mut part = Part::new(6, 2 * rank as i64, 2);
        let error = if rank == 1 { part.apply_wrong(&mut dist) } else { part.apply(&mut dist) }.unwrap_err();
        if rank == 1 {
            assert_eq!((error.status(), error.subject()), (Status::SHAPE, "router_logits"));
            assert!(part.out.iter().all(|x| x.is_nan()), "a failed call changed its output");
        } else {
            assert_eq!(error.status(), Status::PEER, "{error}");
            assert!(error.details().contains(r#""rank":1"#) && error.details().contains("peer_status"));
        }
        part.run(|hidden, routing, out| {
            let few = Tensor::new(&[0f32; E as usize], &[1, E]).unwrap();
            let routing = if rank == 2 { Routing::Logits(&few) } else { routing };
            let mut options = ApplyOptions::default();
            let ended = dist.begin(hidden, routing, out, &mut options).map(|call| call.finish().unwrap_err());
            match ended {
                Err(error) => assert_eq!((rank, error.status()), (2, Status::SHAPE)),
                Ok(error) => assert_eq!(error.status(), Status::PEER),
            }
        });
        part.apply(&mut dist).unwrap();
        part.out
    });
    assert_eq!(parts.concat(), expected);
}

#[test]
fn a_call_that_is_dropped_midway_poisons() {
    let begun = Barrier::new(2);
    on_ranks(Comm::threads(2).unwrap(), |rank, mut comm| {
        let mut dist = spread(&mut comm, "{}");
        let mut part = Part::new(4, 2 * rank as i64, 2);
        if rank == 1 {
            begun.wait();
            comm.set_options(r#"{"timeout_ms":200}"#).unwrap(); // rank 0 has gone, or does not go on
            assert_eq!(part.apply(&mut dist).unwrap_err().status(), Status::COMM);
        } else {
            part.run(|hidden, routing, out| {
                let mut options = ApplyOptions::default();
                let mut call = dist.begin(hidden, routing, out, &mut options).unwrap();
                assert!(!call.poll().unwrap(), "rank 1 has not come");
                assert!(format!("{call:?}").starts_with("DistCall(0x"));
            });
            begun.wait();
        }
        assert_eq!(part.apply(&mut dist).unwrap_err().status(), Status::COMM_POISONED);
        assert!(dist.to_json().unwrap().contains(r#""poisoned":true"#));
        assert_eq!(comm.set_options("{}").unwrap_err().status(), Status::COMM_POISONED);
        assert_eq!(Dist::new(None, &mut comm, &config(), "{}").unwrap_err().status(), Status::COMM_POISONED);
    });
}

/// Letters by exchange, sender and receiver.
type Letters = HashMap<(usize, usize, usize), Vec<u8>>;

struct Post {
    letters: Mutex<Letters>,
    gone: Vec<AtomicBool>,
    armed: AtomicBool,
}

/// A transport of letters in a map; `fault`: what it does once it is armed.
struct Mailbox {
    post: Arc<Post>,
    rank: usize,
    started: usize,
    fault: &'static str,
}

impl Mailbox {
    fn fails(&self, fault: &str) -> bool {
        self.fault == fault && self.post.armed.load(SeqCst)
    }
}

impl Transport for Mailbox {
    type Operation = (usize, Vec<bool>); // its number, and whose letters are still to come

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.post.gone.len()
    }

    fn start(&mut self, exchange: &mut Exchange) -> Result<Self::Operation, Error> {
        if self.fails("start") {
            panic!("no mail today");
        }
        let mut letters = self.post.letters.lock().unwrap();
        for rank in 0..self.size() {
            letters.insert((self.started, self.rank, rank), exchange.outgoing(rank).to_vec());
        }
        self.started += 1;
        Ok((self.started - 1, vec![true; self.size()]))
    }

    fn test(&mut self, (number, missing): &mut Self::Operation, exchange: &mut Exchange) -> Result<bool, Error> {
        if self.fails("test") {
            panic!("no mail today");
        }
        if self.fails("error") {
            return Err(Error::new(Status::IO, "the office is closed"));
        }
        if self.fails("other rank") {
            exchange.incoming(self.size());
        }
        for (rank, missing) in missing.iter_mut().enumerate().filter(|(_, missing)| **missing) {
            let gone = self.post.gone[rank].load(SeqCst); // before the look for its letter
            match self.post.letters.lock().unwrap().remove(&(*number, rank, self.rank)) {
                Some(letter) => exchange.incoming(rank).copy_from_slice(&letter),
                None if gone => return Err(Error::new(Status::IO, format!("rank {rank} has moved"))),
                None => continue,
            }
            *missing = false;
        }
        Ok(!missing.contains(&true))
    }

    fn pause(&mut self, duration: Duration) {
        assert!(duration <= Duration::from_secs(1));
        if self.fails("pause") {
            panic!("no mail today");
        }
        std::thread::yield_now();
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.post.gone[self.rank].store(true, SeqCst);
    }
}

fn mailboxes(size: usize, fault: &'static str) -> (Arc<Post>, Vec<Comm>) {
    let gone = (0..size).map(|_| AtomicBool::new(false)).collect();
    let post = Arc::new(Post { letters: Mutex::default(), gone, armed: AtomicBool::new(false) });
    let comm = |rank| {
        let fault = if rank == 0 { "" } else { fault };
        Comm::from_ops(Mailbox { post: post.clone(), rank, started: 0, fault }, "{}").unwrap()
    };
    (post.clone(), (0..size).map(comm).collect())
}

#[test]
fn a_transport_of_the_program_gives_the_same_bits() {
    let layer = layer_of(None, &config());
    for counts in COUNTS {
        let (post, comms) = mailboxes(counts.len(), "");
        let expected = apply(&layer, counts.iter().sum());
        assert_eq!(outputs(comms, counts, r#"{"chunk_tokens":2}"#), expected, "{counts:?}");
        assert!(post.letters.lock().unwrap().is_empty(), "a letter was not read");
        assert!(post.gone.iter().all(|gone| gone.load(SeqCst)), "a transport was not ended");
    }
}

#[test]
fn a_transport_that_fails_or_panics_is_an_error() {
    for (fault, says) in [
        ("start", "the transport's start panicked: no mail today"),
        ("test", "the transport's test panicked: no mail today"),
        ("pause", "the transport's pause panicked: no mail today"),
        ("other rank", "the transport's test panicked: rank 2 of 2"),
        ("error", "the office is closed"),
    ] {
        let (post, comms) = mailboxes(2, fault);
        let failed = Barrier::new(2);
        on_ranks(comms, |rank, mut comm| {
            let mut dist = spread(&mut comm, "{}");
            let mut part = Part::new(4, 2 * rank as i64, 2);
            if rank == 0 {
                failed.wait();
                let error = part.apply(&mut dist).unwrap_err();
                assert_eq!(error.status(), Status::COMM, "{fault}: {error}");
                assert!(error.message().contains("rank 1 has moved"), "{fault}: {error}");
                return;
            }
            post.armed.store(true, SeqCst);
            let error = part.apply(&mut dist).unwrap_err();
            assert_eq!(error.status(), Status::COMM, "{fault}: {error}");
            assert!(error.message().contains(says), "{fault}: {error}");
            assert!(error.details().contains(r#""reason":"transport""#), "{}", error.details());
            assert_eq!(part.apply(&mut dist).unwrap_err().status(), Status::COMM_POISONED);
            failed.wait();
        });
    }
}

#[test]
fn a_wait_that_is_too_long_is_an_error() {
    struct Alone(Arc<AtomicBool>);
    impl Transport for Alone {
        type Operation = ();
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            2
        }
        fn start(&mut self, _: &mut Exchange) -> Result<(), Error> {
            Ok(())
        }
        fn test(&mut self, _: &mut (), _: &mut Exchange) -> Result<bool, Error> {
            Ok(false)
        }
        fn abort(&mut self, code: i32) {
            self.0.store(code != 0, SeqCst);
            panic!("cannot");
        }
    }
    static KEPT: Mutex<Vec<Comm>> = Mutex::new(Vec::new());
    let aborted = Arc::new(AtomicBool::new(false));
    for (options, aborts) in [(r#"{"timeout_ms":20}"#, false), (r#"{"timeout_ms":20,"on_timeout":"abort"}"#, true)] {
        let mut comm = Comm::from_ops(Alone(aborted.clone()), options).unwrap();
        let error = Dist::new(None, &mut comm, &config(), "{}").unwrap_err();
        assert_eq!((error.status(), aborted.load(SeqCst)), (Status::COMM, aborts), "{error}");
        assert!(error.details().contains(r#""reason":"timeout""#), "{}", error.details());
        KEPT.lock().unwrap().push(comm); // ended, it would leave the memory that its transport may still write to
    }
}

#[test]
fn communicators_that_cannot_be_are_refused() {
    for size in [0, 1025, 1 << 20, usize::MAX] {
        assert_eq!(Comm::threads(size).unwrap_err().status(), Status::INVALID_ARGUMENT, "{size}");
    }
    let gone: Vec<_> = (0..2).map(|_| AtomicBool::new(false)).collect();
    let post = Arc::new(Post { letters: Mutex::default(), gone, armed: AtomicBool::new(false) });
    let open = |rank, options| Comm::from_ops(Mailbox { post: post.clone(), rank, started: 0, fault: "" }, options);
    assert_eq!(open(0, r#"{"timeout_ms":0}"#).unwrap_err().subject(), "/timeout_ms");
    assert!(post.gone[0].load(SeqCst), "a refused transport was not ended");
    struct Size(usize);
    impl Transport for Size {
        type Operation = ();
        fn rank(&self) -> usize {
            1
        }
        fn size(&self) -> usize {
            self.0
        }
        fn start(&mut self, _: &mut Exchange) -> Result<(), Error> {
            unreachable!()
        }
        fn test(&mut self, _: &mut (), _: &mut Exchange) -> Result<bool, Error> {
            unreachable!()
        }
    }
    for size in [0, 1, usize::MAX] {
        assert_eq!(Comm::from_ops(Size(size), "{}").unwrap_err().status(), Status::INVALID_ARGUMENT, "{size}");
    }
}
