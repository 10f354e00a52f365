#compdef moe
# Completion of moe for zsh. Written by moe --completion zsh.
_moe() {
  local -a commands=(
    'doctor:Show the library, this machine, and what may be wrong with either'
    'inspect:Show what is in a model'\''s directory and whether it runs here'
    'why:Show every kernel for a layer, and why each was taken or refused'
    'convert:Convert a model once, into a directory that is mapped in milliseconds'
    'bench:Measure tokens per second of a model'\''s experts, or of a shape'
    'check:Compare a converted model with its hashes, its source and float64'
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
    doctor)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '-t[Threads that read; 0\: all cores]:N:' \
        '--threads[Threads that read; 0\: all cores]:N:' \
        '--seconds[How long the memory is read]:S:' \
        '*:directory:_files'
      ;;
    inspect)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '--for[The machine\: this, scalar, avx2, avxvnni, avx512, avx512bf16, amx, arm, cuda\:MAJOR.MINOR, rocm\:GFX, xpu, BACKEND\:MAJOR.MINOR such as marlin\:9.0, or a file with a platform'\''s JSON]:MACHINE:_files' \
        '--memory[Bytes that the experts may take (4GB, 512MB); 0\: what is free here]:BYTES:' \
        '*:directory:_files'
      ;;
    why)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '--layer[The layer; by default the first that has experts]:N:' \
        '--kernel[Only kernels whose name has this in it; exit code 1 if none of them accepts]:K:' \
        '--for[The machine\: this, scalar, avx2, avxvnni, avx512, avx512bf16, amx, arm, cuda\:MAJOR.MINOR, rocm\:GFX, xpu, BACKEND\:MAJOR.MINOR such as marlin\:9.0, or a file with a platform'\''s JSON]:MACHINE:_files' \
        '*:directory:_files'
      ;;
    convert)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '--layers[Only these, such as 0-3,7; by default all that have experts]:LIST:' \
        '--for[The machine\: this, scalar, avx2, avxvnni, avx512, avx512bf16, amx, arm, cuda\:MAJOR.MINOR, rocm\:GFX, xpu, BACKEND\:MAJOR.MINOR such as marlin\:9.0, or a file with a platform'\''s JSON]:MACHINE:_files' \
        '--verify[Compare the hashes of files that are there already]' \
        '-t[Threads; 0\: all cores]:N:' \
        '--threads[Threads; 0\: all cores]:N:' \
        '*:directory:_files'
      ;;
    bench)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '--shape[Instead of a directory\: qwen3-30b-a3b, qwen3-235b-a22b, qwen3-next-80b-a3b, mixtral-8x7b, mixtral-8x22b, deepseek-v3, kimi-k2, glm-4.5-air, gpt-oss-20b, gpt-oss-120b]:NAME:' \
        '--format[Weights of --shape, by default those it is known in\: w4a8-g128, w4a8-g32, w4a8-channel, w8a8-channel, w4a16-g128, w4a16-g32, w8a16-channel, fp8-channel, fp8-block, mxfp8, mxfp4, nvfp4, bf16]:F:' \
        '-t[Numbers of threads; 0\: all cores]:LIST:' \
        '--threads[Numbers of threads; 0\: all cores]:LIST:' \
        '-p[Tokens of a prompt that go through a layer at once]:LIST:' \
        '--prefill[Tokens of a prompt that go through a layer at once]:LIST:' \
        '-n[Tokens of a decode step\: one for each sequence]:LIST:' \
        '--decode[Tokens of a decode step\: one for each sequence]:LIST:' \
        '-r[Repetitions of a row]:N:' \
        '--repetitions[Repetitions of a row]:N:' \
        '--seconds[The least time of a repetition]:S:' \
        '--layers[Only these layers, such as 0-3; with --shape how many]:LIST:' \
        '--plot[Also draw the rows (SVG, needs gnuplot)]:FILE:_files' \
        '--for[The machine\: this, scalar, avx2, avxvnni, avx512, avx512bf16, amx, arm, cuda\:MAJOR.MINOR, rocm\:GFX, xpu, BACKEND\:MAJOR.MINOR such as marlin\:9.0, or a file with a platform'\''s JSON]:MACHINE:_files' \
        '*:directory:_files'
      ;;
    check)
      _arguments \
        '-h[Print this help message and exit]' \
        '--help[Print this help message and exit]' \
        '--json[Print one JSON document instead of text]' \
        '--layers[Only these, such as 0-3,7]:LIST:' \
        '--tokens[Tokens that are compared with float64, in each layer]:N:' \
        '--full[With DIR\: convert all experts again, not one of each layer]' \
        '-t[Threads; 0\: all cores]:N:' \
        '--threads[Threads; 0\: all cores]:N:' \
        '*:directory:_files'
      ;;
  esac
}
_moe "$@"
