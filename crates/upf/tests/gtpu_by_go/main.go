package main
import ("fmt"; "github.com/wmnsk/go-gtp/gtpv1/message")
func main(){ fmt.Println(message.NewTPDU(1, nil)) }
