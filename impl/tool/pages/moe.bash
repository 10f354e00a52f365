# Completion of moe for bash. Written by moe --completion bash.
_moe() {
  local current=${COMP_WORDS[COMP_CWORD]} words
  COMPREPLY=()
  case ${COMP_WORDS[1]} in
    doctor) words='-h --help --json -t --threads --seconds' ;;
    inspect) words='-h --help --json --for --memory' ;;
    why) words='-h --help --json --layer --kernel --for' ;;
    convert) words='-h --help --json --layers --for --verify -t --threads' ;;
    bench) words='-h --help --json --shape --format -t --threads -p --prefill -n --decode -r --repetitions --seconds --layers --plot --for' ;;
    check) words='-h --help --json --layers --tokens --full -t --threads' ;;
    *) words='-h --help --version' ;;
  esac
  if [[ $COMP_CWORD == 1 && $current != -* ]]; then
    words='doctor inspect why convert bench check'
  elif [[ $current != -* ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _moe moe
