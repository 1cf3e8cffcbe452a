//! In a test binary of its own, since memory is measured for the whole process.

#[test]
#[should_panic(expected = "only promised")]
fn a_decoder_that_allocates_what_a_length_promises_is_found() {
    onward_testkit::mutate("allocating", &[b"\x05hello".to_vec()], |bytes| {
        let promised = bytes.first().map_or(0, |length| usize::from(*length)) << 24;
        let held: Vec<u8> = Vec::with_capacity(promised);
        std::hint::black_box(&held).capacity() < usize::MAX
    });
}
